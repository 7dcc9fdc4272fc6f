// Elementary functions in double, of our own code: the C library's differ
// between machines and versions in the last bit. Only +, -, *, / and sqrt are
// used, so the bits are the same everywhere.
// Errors against the true value are below 4 ulp in the ranges given, unless
// said otherwise.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_MATH_H_
#define SHARDSHIFT_KERNELS_MATH_H_

#include <cstdint>

namespace shardshift::kernels {

// Natural logarithm of a positive normal number; -inf at 0, NaN below, +inf at
// +inf.
double Log(double x);

// e^x for |x| <= 700. REQUIRES: that range.
double Exp(double x);

// sin and cos of an angle in radians, absolute error below 1e-15 for
// |angle| <= 2^20. REQUIRES: that range.
struct SinCosResult {
  double sin = 0;
  double cos = 0;
};
SinCosResult SinCos(double angle);

// base^exponent by repeated squaring. REQUIRES: exponent >= 0.
double Pow(double base, int64_t exponent);

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_MATH_H_
