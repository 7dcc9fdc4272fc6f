// SPDX-License-Identifier: Apache-2.0
#include "kernels/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/ref/math.h"

namespace shardshift::kernels {
namespace {

// Distance of `value` from `exact` in units of value's last place.
double UlpError(float value, double exact) {
  const float next = std::nextafterf(std::fabs(value), INFINITY);
  return std::fabs(value - exact) / (next - std::fabs(value));
}
double UlpError(double value, long double exact) {
  const double next = std::nextafter(std::fabs(value), INFINITY);
  return static_cast<double>(std::fabs(value - exact) /
                             (next - std::fabs(value)));
}

// begin, begin + step, .. below end.
std::vector<double> Grid(double begin, double end, double step) {
  std::vector<double> points;
  for (int64_t i = 0; points.empty() || points.back() + step < end; ++i) {
    points.push_back(begin + static_cast<double>(i) * step);
  }
  return points;
}
// begin, begin factor, begin factor^2, .. below end.
std::vector<double> Geometric(double begin, double end, double factor) {
  std::vector<double> points = {begin};
  while (points.back() * factor < end) {
    points.push_back(points.back() * factor);
  }
  return points;
}

TEST(FloatExp, IsWithinOneUlp) {
  double worst = 0;
  for (const double point : Grid(-87.3, 88.7, 0.00037)) {
    const auto x = static_cast<float>(point);
    worst = std::max(worst, UlpError(ref::Exp(x), std::exp(double{x})));
  }
  EXPECT_LT(worst, 1.0);
}

TEST(FloatExp, GoesThroughDenormalsToZero) {
  for (const double point : Grid(-103.9, -87.0, 0.01)) {
    const auto x = static_cast<float>(point);
    EXPECT_NEAR(ref::Exp(x), std::exp(double{x}), 0x1p-149) << x;
  }
  EXPECT_EQ(ref::Exp(-104.0F), 0.0F);
  EXPECT_EQ(ref::Exp(-INFINITY), 0.0F);
}

TEST(FloatExp, OverflowsToInfinityAndKeepsNan) {
  EXPECT_TRUE(std::isfinite(ref::Exp(88.72F)));
  EXPECT_EQ(ref::Exp(88.73F), INFINITY);
  EXPECT_EQ(ref::Exp(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(ref::Exp(NAN)));
  EXPECT_TRUE(std::isnan(ref::Exp(-NAN)));
  EXPECT_EQ(ref::Exp(0.0F), 1.0F);
  EXPECT_EQ(ref::Exp(-0.0F), 1.0F);
}

TEST(Log, IsWithinFourUlp) {
  double worst = 0;
  for (const double x : Geometric(1e-300, 1e300, 1.0173)) {
    worst = std::max(worst,
                     UlpError(Log(x), std::log(static_cast<long double>(x))));
  }
  for (const double x : Grid(0.5, 2.0, 0.000123)) {
    worst = std::max(worst,
                     UlpError(Log(x), std::log(static_cast<long double>(x))));
  }
  EXPECT_LT(worst, 4.0);
}

TEST(Log, HasItsLimits) {
  EXPECT_EQ(Log(1.0), 0.0);
  EXPECT_EQ(Log(0.0), -INFINITY);
  EXPECT_EQ(Log(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(Log(-1.0)));
  EXPECT_TRUE(std::isnan(Log(NAN)));
}

TEST(Exp, IsWithinFourUlp) {
  double worst = 0;
  for (const double x : Grid(-700, 700, 0.0271)) {
    worst = std::max(worst,
                     UlpError(Exp(x), std::exp(static_cast<long double>(x))));
  }
  EXPECT_LT(worst, 4.0);
}

TEST(SinCos, IsWithinItsAbsoluteError) {
  double worst = 0;
  std::vector<double> angles = Grid(-10, 10, 0.00137);
  for (const double x : Geometric(10, 0x1p20, 1.0007)) angles.push_back(x);
  for (const double x : angles) {
    const SinCosResult value = SinCos(x);
    worst = std::max(worst, std::fabs(value.sin - std::sin(x)));
    worst = std::max(worst, std::fabs(value.cos - std::cos(x)));
  }
  EXPECT_LT(worst, 1e-15);
}

TEST(Pow, MultipliesOut) {
  EXPECT_EQ(Pow(3.0, 0), 1.0);
  EXPECT_EQ(Pow(3.0, 5), 243.0);
  EXPECT_NEAR(Pow(0.999, 12345), std::pow(0.999, 12345), 1e-17);
}

}  // namespace
}  // namespace shardshift::kernels
