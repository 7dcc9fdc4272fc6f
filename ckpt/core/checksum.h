// XXH3 checksums of payload blocks and of file metadata.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_CORE_CHECKSUM_H_
#define SHARDSHIFT_CKPT_CORE_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace shardshift::ckpt {

// A fragment's bytes are checksummed in blocks of this size, the last one
// shorter. A partial read fetches and verifies whole blocks. Every item size
// divides it.
inline constexpr int64_t kBlockBytes = int64_t{4} << 20;

// Blocks of a fragment of `num_bytes`.
inline constexpr int64_t NumBlocks(int64_t num_bytes) {
  return num_bytes / kBlockBytes + (num_bytes % kBlockBytes != 0 ? 1 : 0);
}

// No block takes more bytes in a file, whatever its codec: 1/256 is what zstd
// may add to what it cannot compress.
inline constexpr int64_t kMaxStoredBytes = kBlockBytes + kBlockBytes / 256;

// XXH3-64.
uint64_t Checksum64(std::span<const std::byte> bytes);

struct Digest128 {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const Digest128&, const Digest128&) = default;
};

// 32 hexadecimal digits.
std::string ToString(const Digest128& digest);

// XXH3-128 of bytes that come in pieces.
class Digest128Stream {
 public:
  Digest128Stream();
  ~Digest128Stream();
  Digest128Stream(Digest128Stream&&) noexcept;
  Digest128Stream& operator=(Digest128Stream&&) noexcept;

  void Update(std::span<const std::byte> bytes);
  Digest128 Digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Checksum64 of bytes that come in pieces.
class Checksum64Stream {
 public:
  Checksum64Stream();
  ~Checksum64Stream();
  Checksum64Stream(Checksum64Stream&&) noexcept;
  Checksum64Stream& operator=(Checksum64Stream&&) noexcept;

  void Update(std::span<const std::byte> bytes);
  uint64_t Digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_CORE_CHECKSUM_H_
