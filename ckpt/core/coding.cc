// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/coding.h"

#include <limits>

#include "absl/strings/str_cat.h"

namespace shardshift::ckpt {

void Encoder::PutLittleEndian(uint64_t value, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) {
    bytes_.push_back(static_cast<char>(value >> (8 * i)));
  }
}

void Encoder::PutString(absl::string_view text) {
  PutInt(static_cast<int64_t>(text.size()));
  bytes_.append(text.data(), text.size());
}

void Encoder::PutVarint(int64_t value) {
  auto rest = static_cast<uint64_t>(value);
  for (; rest >= 0x80; rest >>= 7) {
    PutU8(static_cast<uint8_t>(rest | 0x80));
  }
  PutU8(static_cast<uint8_t>(rest));
}

void Encoder::PutShortString(absl::string_view text) {
  PutVarint(static_cast<int64_t>(text.size()));
  bytes_.append(text.data(), text.size());
}

void Decoder::Fail(absl::string_view what) {
  if (!ok()) return;
  status_ = absl::DataLossError(
      absl::StrCat(what, " at byte ", position_, " of ", bytes_.size()));
}

uint64_t Decoder::GetLittleEndian(int num_bytes) {
  if (!ok()) return 0;
  if (remaining() < num_bytes) {
    Fail("ends early");
    return 0;
  }
  uint64_t value = 0;
  for (int i = 0; i < num_bytes; ++i) {
    const auto byte = static_cast<uint8_t>(bytes_[position_ + i]);
    value |= uint64_t{byte} << (8 * i);
  }
  position_ += num_bytes;
  return value;
}

uint8_t Decoder::GetU8() { return static_cast<uint8_t>(GetLittleEndian(1)); }

uint32_t Decoder::GetU32() { return static_cast<uint32_t>(GetLittleEndian(4)); }

uint64_t Decoder::GetU64() { return GetLittleEndian(8); }

int64_t Decoder::GetInt() {
  const uint64_t value = GetU64();
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    Fail("number beyond 63 bits");
    return 0;
  }
  return static_cast<int64_t>(value);
}

int64_t Decoder::GetVarint() {
  constexpr int kMaxBytes = 9;  // of 7 bits: the 63 of int64_t
  uint64_t value = 0;
  for (int i = 0; i < kMaxBytes; ++i) {
    const uint8_t byte = GetU8();
    value |= uint64_t{byte & 0x7Fu} << (7 * i);
    if (byte >= 0x80) continue;
    if (byte == 0 && i > 0) Fail("number longer than need be");
    return ok() ? static_cast<int64_t>(value) : 0;
  }
  Fail("number beyond 63 bits");
  return 0;
}

int64_t Decoder::GetCount(int64_t min_item_bytes) {
  const int64_t count = GetVarint();
  if (count > remaining() / min_item_bytes) {
    Fail("count beyond the end");
    return 0;
  }
  return count;
}

std::string Decoder::GetShortString() {
  const int64_t size = GetCount(1);
  if (!ok()) return "";
  const auto* text = reinterpret_cast<const char*>(bytes_.data() + position_);
  position_ += size;
  return std::string(text, static_cast<size_t>(size));
}

absl::Status Decoder::Finish() const {
  if (ok() && remaining() > 0) {
    return absl::DataLossError(absl::StrCat(remaining(),
                                            " bytes left over at byte ",
                                            position_, " of ", bytes_.size()));
  }
  return status_;
}

}  // namespace shardshift::ckpt
