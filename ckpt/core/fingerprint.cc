// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/fingerprint.h"

#include <algorithm>

#include "ckpt/core/block_sums.h"
#include "ckpt/core/coding.h"

namespace shardshift::ckpt {
namespace {

using uint128 = unsigned __int128;

uint64_t AddMod(uint64_t a, uint64_t b) {
  const uint64_t sum = a + b;
  return sum < kFingerprintModulus ? sum : sum - kFingerprintModulus;
}

// `x` modulo kFingerprintModulus. REQUIRES: x < 2^122.
uint64_t Reduce(uint128 x) {
  // 2^61 is 1 modulo the prime: the high half is added to the low one.
  const uint64_t sum = (static_cast<uint64_t>(x) & kFingerprintModulus) +
                       static_cast<uint64_t>(x >> 61);
  return AddMod(sum & kFingerprintModulus, sum >> 61);
}

Digest128 Digest(const Encoder& encoder) {
  Digest128Stream stream;
  stream.Update(AsBytes(encoder.bytes()));
  return stream.Digest();
}

}  // namespace

Fingerprint& Fingerprint::operator+=(const Fingerprint& other) {
  low = AddMod(low, other.low);
  high = AddMod(high, other.high);
  return *this;
}

std::string ToString(const Fingerprint& fingerprint) {
  return ToString(Digest128{fingerprint.low, fingerprint.high});
}

Digest128 FingerprintKey(absl::string_view name, absl::string_view role,
                         DType dtype) {
  Encoder encoder;
  encoder.PutString(name);
  encoder.PutString(role);
  encoder.PutU8(static_cast<uint8_t>(dtype));
  return Digest(encoder);
}

RunFingerprint::RunFingerprint(const Digest128& key)
    : seed_{key.low, key.high} {}

void RunFingerprint::MoveTo(int64_t block) {
  if (block == block_) return;
  block_ = block;
  for (int lane = 0; lane < 2; ++lane) {
    scale_[lane] =
        1 + (SplitMix64(seed_[lane], static_cast<uint64_t>(block)) >> 4);
  }
}

void RunFingerprint::Add(int64_t offset_bytes,
                         std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    MoveTo(offset_bytes / kSumBlockBytes);
    const int64_t offset_in_block = offset_bytes % kSumBlockBytes;
    const auto piece = bytes.first(std::min(
        bytes.size(), static_cast<size_t>(kSumBlockBytes - offset_in_block)));
    const BlockSums sums = SumBlock(offset_in_block, piece);
    sum_ += {Reduce(uint128{scale_[0]} * Reduce(sums[0])),
             Reduce(uint128{scale_[1]} * Reduce(sums[1]))};
    offset_bytes += static_cast<int64_t>(piece.size());
    bytes = bytes.subspan(piece.size());
  }
}

BoxFingerprint::BoxFingerprint(const Digest128& key, DType dtype,
                               const Shape& shape, const Box& box,
                               int64_t offset_bytes)
    : runs_(key), run_bytes_(ItemSize(dtype)) {
  bool contiguous = true;
  int64_t stride = ItemSize(dtype);
  for (size_t d = shape.size(); d-- > 0;) {
    if (contiguous) {
      run_bytes_ *= box.extent[d];
    } else {
      stride_.push_back(stride);
      extent_.push_back(box.extent[d]);
    }
    contiguous = contiguous && box.extent[d] == shape[d];
    box_offset_ += box.start[d] * stride;
    stride *= shape[d];
  }
  if (offset_bytes > 0) {
    run_ = offset_bytes / run_bytes_;
    run_position_ = offset_bytes % run_bytes_;
  }
}

int64_t BoxFingerprint::RunOffset() const {
  int64_t offset = box_offset_;
  int64_t run = run_;
  for (size_t d = 0; d < stride_.size(); ++d) {
    // The slowest dim needs no division, the only one of a matrix.
    const bool slowest = d + 1 == stride_.size();
    offset += (slowest ? run : run % extent_[d]) * stride_[d];
    if (!slowest) run /= extent_[d];
  }
  return offset;
}

void BoxFingerprint::Update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(
        bytes.size(), static_cast<size_t>(run_bytes_ - run_position_)));
    runs_.Add(RunOffset() + run_position_, piece);
    run_position_ += static_cast<int64_t>(piece.size());
    bytes = bytes.subspan(piece.size());
    if (run_position_ == run_bytes_) {
      ++run_;
      run_position_ = 0;
    }
  }
}

void RootFingerprint::Add(absl::string_view name, absl::string_view role,
                          DType dtype, const Shape& shape,
                          const Fingerprint& fingerprint) {
  Encoder encoder;
  encoder.PutString(name);
  encoder.PutString(role);
  encoder.PutU8(static_cast<uint8_t>(dtype));
  encoder.PutU8(static_cast<uint8_t>(shape.size()));
  for (const int64_t extent : shape) encoder.PutInt(extent);
  encoder.PutU64(fingerprint.low);
  encoder.PutU64(fingerprint.high);
  stream_.Update(AsBytes(encoder.bytes()));
}

}  // namespace shardshift::ckpt
