// exp and the logistic function in float: the definition that the vector
// backends repeat operation by operation.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_REF_MATH_H_
#define SHARDSHIFT_KERNELS_REF_MATH_H_

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/exp_constants.h"

namespace shardshift::kernels::ref {

// 2^n. REQUIRES: 2^n is a normal float (any n gives some float).
inline float PowerOfTwo(int32_t n) {
  return std::bit_cast<float>(static_cast<uint32_t>(n + 127) << 23);
}

// e^x within 1 ulp: x = n ln2 + r, |r| <= ln2/2, e^x = 2^n e^r. Goes to +inf,
// and through denormals to +0; NaN stays NaN.
inline float Exp(float x) {
  namespace k = exp_constants;
  x = k::kMax < x ? k::kMax : x;
  x = k::kMin > x ? k::kMin : x;
  const float shifted = std::fmaf(x, k::kLog2E, k::kRoundShift);
  const float n = shifted - k::kRoundShift;
  float r = std::fmaf(n, -k::kLn2High, x);
  r = std::fmaf(n, -k::kLn2Low, r);
  float p = std::fmaf(k::kC7, r, k::kC6);
  p = std::fmaf(p, r, k::kC5);
  p = std::fmaf(p, r, k::kC4);
  p = std::fmaf(p, r, k::kC3);
  p = std::fmaf(p, r, k::kC2);
  p = std::fmaf(p, r, 1.0F);
  p = std::fmaf(p, r, 1.0F);
  // Two factors, because 2^n alone may be no normal float.
  const int32_t whole = std::bit_cast<int32_t>(shifted) - k::kRoundShiftBits;
  const int32_t half = whole >> 1;
  return p * PowerOfTwo(half) * PowerOfTwo(whole - half);
}

// 1 / (1 + e^-z).
inline float Sigmoid(float z) { return 1.0F / (1.0F + Exp(-z)); }

}  // namespace shardshift::kernels::ref

#endif  // SHARDSHIFT_KERNELS_REF_MATH_H_
