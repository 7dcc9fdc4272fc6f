// Little-endian encoding of the on-disk tables, and decoding of bytes that
// nobody has checked.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_CORE_CODING_H_
#define SHARDSHIFT_CKPT_CORE_CODING_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace shardshift::ckpt {

inline std::span<const std::byte> AsBytes(absl::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class Encoder {
 public:
  void PutU8(uint8_t value) { bytes_.push_back(static_cast<char>(value)); }
  void PutU32(uint32_t value) { PutLittleEndian(value, 4); }
  void PutU64(uint64_t value) { PutLittleEndian(value, 8); }
  // A count, index or offset, as u64. REQUIRES: not negative.
  void PutInt(int64_t value) { PutU64(static_cast<uint64_t>(value)); }
  // A u64 length, then the bytes.
  void PutString(absl::string_view text);
  // In 1 to 9 bytes of 7 bits each, low bits first; all but the last have
  // their high bit set (LEB128). REQUIRES: not negative.
  void PutVarint(int64_t value);
  // A varint length, then the bytes.
  void PutShortString(absl::string_view text);

  const std::string& bytes() const { return bytes_; }

 private:
  void PutLittleEndian(uint64_t value, int num_bytes);
  std::string bytes_;
};

// Reads in the order of writing. The first failure sticks: from then on every
// read gives zero or an empty text, and status() says what failed where.
class Decoder {
 public:
  // Borrows `bytes`, which outlive the decoder.
  explicit Decoder(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint8_t GetU8();
  uint32_t GetU32();
  uint64_t GetU64();
  // Fails for a value beyond int64_t.
  int64_t GetInt();
  // Fails for a form longer than need be, or a value beyond int64_t.
  int64_t GetVarint();
  // A varint number of items of at least `min_item_bytes` each that are to
  // follow: fails if the rest of the input cannot hold them, so that a caller
  // may allocate for the count. REQUIRES: min_item_bytes > 0.
  int64_t GetCount(int64_t min_item_bytes);
  std::string GetShortString();

  bool ok() const { return status_.ok(); }
  // DataLoss if something failed, or if bytes are left over.
  absl::Status Finish() const;
  // Makes the decoder fail with DataLoss, unless it already has.
  void Fail(absl::string_view what);

 private:
  uint64_t GetLittleEndian(int num_bytes);
  int64_t remaining() const {
    return static_cast<int64_t>(bytes_.size()) - position_;
  }

  std::span<const std::byte> bytes_;
  int64_t position_ = 0;
  absl::Status status_;
};

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_CORE_CODING_H_
