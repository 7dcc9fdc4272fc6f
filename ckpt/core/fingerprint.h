// Content fingerprints: what a logical tensor holds, whatever the boxes it is
// stored in. Definition and collision argument: FORMAT.md, "Fingerprints".
//
// A tensor is taken as its dense row-major image, cut into 32-bit words. Its
// fingerprint is a sum over the words of value times a pseudo-random
// coefficient of the word's index. A byte is a part of its word's value, so the
// sums of boxes that make up the tensor, cut anywhere and taken in any order,
// add up to it. Values are bits: NaN payloads and -0.0 count.
//
// A zero adds nothing: compare fingerprints of tensors of one name, role, dtype
// and shape only. They guard against faults, not against an attacker.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_CORE_FINGERPRINT_H_
#define SHARDSHIFT_CKPT_CORE_FINGERPRINT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/strings/string_view.h"
#include "ckpt/core/box.h"
#include "ckpt/core/checksum.h"
#include "ckpt/core/dtype.h"

namespace shardshift::ckpt {

// 2^61 - 1, a prime.
inline constexpr uint64_t kFingerprintModulus = (uint64_t{1} << 61) - 1;

// Two sums modulo kFingerprintModulus, both less than it; zero is the
// fingerprint of no elements. A decoder checks IsReduced.
struct Fingerprint {
  uint64_t low = 0;
  uint64_t high = 0;

  Fingerprint& operator+=(const Fingerprint& other);
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

inline bool IsReduced(const Fingerprint& fingerprint) {
  return fingerprint.low < kFingerprintModulus &&
         fingerprint.high < kFingerprintModulus;
}

// 32 hexadecimal digits, `high` first.
std::string ToString(const Fingerprint& fingerprint);

// Decides the coefficients of a tensor's words.
Digest128 FingerprintKey(absl::string_view name, absl::string_view role,
                         DType dtype);

// The sum over runs of one tensor's image. To add each byte once is the
// caller's part.
class RunFingerprint {
 public:
  // `key`: of the tensor, FingerprintKey.
  explicit RunFingerprint(const Digest128& key);

  // Adds the bytes at `offset_bytes` of the image.
  void Add(int64_t offset_bytes, std::span<const std::byte> bytes);

  const Fingerprint& fingerprint() const { return sum_; }

 private:
  void MoveTo(int64_t block);

  std::array<uint64_t, 2> seed_;
  int64_t block_ = -1;  // the block that scale_ belongs to
  std::array<uint64_t, 2> scale_ = {};
  Fingerprint sum_;
};

// The same for a box whose own dense row-major image, or the rest of it, comes
// in pieces.
class BoxFingerprint {
 public:
  // The pieces begin at byte `offset_bytes` of the image.
  // REQUIRES: `box` lies within `shape`; int64_t counts the bytes of `shape`.
  BoxFingerprint(const Digest128& key, DType dtype, const Shape& shape,
                 const Box& box, int64_t offset_bytes = 0);

  // The next bytes of the box, any number of them. REQUIRES: no more than the
  // box has.
  void Update(std::span<const std::byte> bytes);

  // Of the bytes that came so far.
  const Fingerprint& fingerprint() const { return runs_.fingerprint(); }

 private:
  int64_t RunOffset() const;

  RunFingerprint runs_;
  // All in bytes of the tensor's image. A run is contiguous there.
  int64_t box_offset_ = 0;
  int64_t run_bytes_;
  Shape stride_;  // of the dims that a run does not span,
  Shape extent_;  // and the box's extents there
  // Where the next byte belongs.
  int64_t run_ = 0;
  int64_t run_position_ = 0;
};

// One digest over all tensors of a checkpoint.
class RootFingerprint {
 public:
  // Tensors come ascending by (name, role), each with its whole fingerprint.
  void Add(absl::string_view name, absl::string_view role, DType dtype,
           const Shape& shape, const Fingerprint& fingerprint);

  Digest128 Digest() const { return stream_.Digest(); }

 private:
  Digest128Stream stream_;
};

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_CORE_FINGERPRINT_H_
