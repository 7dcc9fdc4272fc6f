// SPDX-License-Identifier: Apache-2.0
#include "kernels/math.h"

#include <cassert>
#include <cmath>
#include <limits>
#include <numbers>

namespace shardshift::kernels {
namespace {

// Splits into a part with trailing zero bits, so that its product with a small
// integer is exact, and the rest. Source: fdlibm.
constexpr double kLn2High = 0x1.62e42fee00000p-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kHalfPiHigh = 0x1.921fb54400000p+0;
constexpr double kHalfPiMiddle = 0x1.0b4611a600000p-34;
constexpr double kHalfPiLow = 0x1.3198a2e037073p-69;

double Round(double x) { return std::floor(x + 0.5); }

// Taylor series, for |r| <= pi/4.
double SinSeries(double r) {
  const double square = r * r;
  double tail = 0.0;
  for (int n = 17; n >= 3; n -= 2) {
    tail = -(1.0 + tail) * square / (n * (n - 1));
  }
  return r + r * tail;
}

double CosSeries(double r) {
  const double square = r * r;
  double tail = 0.0;
  for (int n = 18; n >= 2; n -= 2) {
    tail = -(1.0 + tail) * square / (n * (n - 1));
  }
  return 1.0 + tail;
}

}  // namespace

double Log(double x) {
  if (!(x > 0.0)) {
    return x == 0.0 ? -std::numeric_limits<double>::infinity()
                    : std::numeric_limits<double>::quiet_NaN();
  }
  if (std::isinf(x)) return x;
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);
  if (mantissa < std::numbers::sqrt2 / 2) {
    mantissa *= 2.0;
    --exponent;
  }
  // log(m) = 2 atanh(s), |s| < 0.172.
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  const double square = s * s;
  double tail = 0.0;
  for (int n = 23; n >= 3; n -= 2) tail = (1.0 / n + tail) * square;
  const double log_mantissa = 2.0 * s + 2.0 * s * tail;
  return exponent * kLn2High + (log_mantissa + exponent * kLn2Low);
}

double Exp(double x) {
  assert(std::fabs(x) <= 700.0);
  const double n = Round(x * std::numbers::log2e);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double tail = 0.0;
  for (int k = 14; k >= 2; --k) tail = (1.0 + tail) * r / k;
  return std::ldexp(1.0 + (r + r * tail), static_cast<int>(n));
}

SinCosResult SinCos(double angle) {
  assert(std::fabs(angle) <= 0x1p20);
  const double quarters = Round(angle * (2.0 / std::numbers::pi));
  const double r =
      ((angle - quarters * kHalfPiHigh) - quarters * kHalfPiMiddle) -
      quarters * kHalfPiLow;
  const double sin = SinSeries(r);
  const double cos = CosSeries(r);
  switch (static_cast<int64_t>(quarters) & 3) {
    case 0:
      return {sin, cos};
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    default:
      return {-cos, sin};
  }
}

double Pow(double base, int64_t exponent) {
  assert(exponent >= 0);
  double result = 1.0;
  for (double square = base; exponent > 0; exponent /= 2, square *= square) {
    if (exponent % 2 == 1) result *= square;
  }
  return result;
}

}  // namespace shardshift::kernels
