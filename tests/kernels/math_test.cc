// SPDX-License-Identifier: Apache-2.0
#include "kernels/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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

TEST(FloatExp, IsWithinOneUlp) {
  double worst = 0;
  for (float x = -87.3F; x < 88.7F; x += 0.00037F) {
    worst = std::max(worst, UlpError(ref::Exp(x), std::exp(double{x})));
  }
  EXPECT_LT(worst, 1.0);
  RecordProperty("worst_ulp_e3", static_cast<int>(worst * 1000));
}

TEST(FloatExp, GoesThroughDenormalsToZero) {
  for (float x = -103.9F; x < -87.0F; x += 0.01F) {
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
  for (double x = 1e-300; x < 1e300; x *= 1.0173) {
    worst = std::max(worst, UlpError(Log(x), std::log((long double){x})));
  }
  for (double x = 0.5; x < 2.0; x += 0.000123) {
    worst = std::max(worst, UlpError(Log(x), std::log((long double){x})));
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
  for (double x = -700; x < 700; x += 0.0271) {
    worst = std::max(worst, UlpError(Exp(x), std::exp((long double){x})));
  }
  EXPECT_LT(worst, 4.0);
}

TEST(SinCos, IsWithinItsAbsoluteError) {
  double worst = 0;
  for (double x = -10; x < 10; x += 0.00137) {
    const SinCosResult value = SinCos(x);
    worst = std::max(worst, std::fabs(value.sin - std::sin(x)));
    worst = std::max(worst, std::fabs(value.cos - std::cos(x)));
  }
  for (double x = 10; x < 0x1p20; x = x * 1.0007 + 1) {
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
