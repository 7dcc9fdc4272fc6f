// The exact sum of squares of floats: no rounding before the end, so the result
// depends neither on the order nor on who adds what.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_EXACT_SUM_H_
#define SHARDSHIFT_KERNELS_EXACT_SUM_H_

#include <array>
#include <cstdint>
#include <span>

namespace shardshift::kernels {

// Fixed-point number of kDigits signed digits of 32 bits, lowest first: digit d
// weighs 2^(32 d - 352). Exponents -352..+288 hold every float's square. Not
// thread-safe.
class ExactSumOfSquares {
 public:
  static constexpr int64_t kDigits = 20;
  // The digits, then the number of non-finite terms. Plain integers: the sum
  // over several accumulators is the element-by-element sum.
  using Words = std::array<int64_t, kDigits + 1>;

  void Add(std::span<const float> values);

  // The state with all carries done: words of up to 2^30 accumulators can be
  // added without overflow.
  Words ToWords() const;
  // An accumulator that holds the sum of `words`, added over any accumulators.
  static ExactSumOfSquares FromWords(const Words& words);

  // The sum, evaluated from the highest digit down; NaN if a term was not
  // finite. The same bits for the same multiset of terms.
  double ToDouble() const;

 private:
  void Carry();

  std::array<int64_t, kDigits> digits_ = {};
  int64_t non_finite_ = 0;
  int64_t adds_since_carry_ = 0;
};

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_EXACT_SUM_H_
