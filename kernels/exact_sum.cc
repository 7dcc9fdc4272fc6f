// SPDX-License-Identifier: Apache-2.0
#include "kernels/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

namespace shardshift::kernels {
namespace {

constexpr int64_t kDigitBits = 32;
constexpr uint64_t kDigitMask = 0xFFFFFFFF;
constexpr int64_t kLowestExponent = -352;
// An add puts less than 2^32 on a digit, so this many stay below 2^62.
constexpr int64_t kAddsPerCarry = int64_t{1} << 29;

constexpr int kMantissaBits = 52;
constexpr uint64_t kMantissaMask = (uint64_t{1} << kMantissaBits) - 1;
constexpr int64_t kExponentBias = 1023 + kMantissaBits;

}  // namespace

void ExactSumOfSquares::Add(std::span<const float> values) {
  for (const float value : values) {
    if (!std::isfinite(value)) {
      ++non_finite_;
      continue;
    }
    if (value == 0.0F) continue;
    // Exact: 24 by 24 bits give 48, and no float's square is a denormal double.
    const double square = static_cast<double>(value) * value;
    const auto bits = std::bit_cast<uint64_t>(square);
    const uint64_t mantissa = (bits & kMantissaMask) | (kMantissaMask + 1);
    const int64_t exponent =
        static_cast<int64_t>(bits >> kMantissaBits) - kExponentBias;
    const int64_t position = exponent - kLowestExponent;
    const int64_t digit = position / kDigitBits;
    const int64_t shift = position % kDigitBits;
    const uint64_t low = (mantissa & kDigitMask) << shift;
    const uint64_t high = ((mantissa >> kDigitBits) << shift) + (low >> 32);
    digits_[digit] += static_cast<int64_t>(low & kDigitMask);
    digits_[digit + 1] += static_cast<int64_t>(high & kDigitMask);
    digits_[digit + 2] += static_cast<int64_t>(high >> kDigitBits);
    if (++adds_since_carry_ == kAddsPerCarry) Carry();
  }
}

void ExactSumOfSquares::Carry() {
  for (int64_t d = 0; d + 1 < kDigits; ++d) {
    digits_[d + 1] += digits_[d] >> kDigitBits;
    digits_[d] &= static_cast<int64_t>(kDigitMask);
  }
  adds_since_carry_ = 0;
}

ExactSumOfSquares::Words ExactSumOfSquares::ToWords() const {
  ExactSumOfSquares carried = *this;
  carried.Carry();
  Words words = {};
  for (int64_t d = 0; d < kDigits; ++d) words[d] = carried.digits_[d];
  words[kDigits] = non_finite_;
  return words;
}

ExactSumOfSquares ExactSumOfSquares::FromWords(const Words& words) {
  ExactSumOfSquares sum;
  for (int64_t d = 0; d < kDigits; ++d) sum.digits_[d] = words[d];
  sum.non_finite_ = words[kDigits];
  sum.Carry();
  return sum;
}

double ExactSumOfSquares::ToDouble() const {
  if (non_finite_ != 0) return std::numeric_limits<double>::quiet_NaN();
  const Words words = ToWords();
  double sum = 0.0;
  for (int64_t d = kDigits - 1; d >= 0; --d) {
    const auto exponent = static_cast<int>(kDigitBits * d + kLowestExponent);
    sum += std::ldexp(static_cast<double>(words[d]), exponent);
  }
  return sum;
}

}  // namespace shardshift::kernels
