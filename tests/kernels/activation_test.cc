// SPDX-License-Identifier: Apache-2.0
#include "kernels/activation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "tests/kernels/kernel_test.h"

namespace shardshift::kernels {
namespace {

std::vector<float> Gelu(const std::vector<float>& x) {
  std::vector<float> y(x.size());
  KernelsFor(DetectIsa())
      .gelu_forward({x.data(), static_cast<int64_t>(x.size()), y.data()});
  return y;
}

TEST(Gelu, IsTheTanhForm) {
  const double root = std::sqrt(2 / std::numbers::pi);
  for (int64_t i = -160; i < 160; ++i) {
    const float x = 0.037F * static_cast<float>(i);
    const double u = root * (x + 0.044715 * std::pow(double{x}, 3));
    EXPECT_NEAR(Gelu({x})[0], 0.5 * x * (1 + std::tanh(u)),
                4e-7 * std::fabs(x) + 1e-12)
        << x;
  }
}

TEST(Gelu, ReachesItsLimitsFarOut) {
  EXPECT_EQ(Gelu({50.0F})[0], 50.0F);
  EXPECT_EQ(Gelu({-50.0F})[0], 0.0F);
  EXPECT_EQ(Gelu({1e30F})[0], 1e30F);
  EXPECT_TRUE(std::isnan(Gelu({std::numeric_limits<float>::quiet_NaN()})[0]));
}

std::vector<float> ExactGelu(const std::vector<float>& x) {
  std::vector<float> y(x.size());
  KernelsFor(DetectIsa())
      .exact_gelu_forward({x.data(), static_cast<int64_t>(x.size()), y.data()});
  return y;
}

std::vector<float> ExactGeluSlope(const std::vector<float>& x) {
  const std::vector<float> dy(x.size(), 1.0F);
  std::vector<float> dx(x.size());
  KernelsFor(DetectIsa())
      .exact_gelu_backward(
          {dy.data(), x.data(), static_cast<int64_t>(x.size()), dx.data()});
  return dx;
}

std::vector<float> GeluPoints() {
  std::vector<float> x;
  for (int64_t i = -130'000; i < 130'000; ++i) {
    x.push_back(1e-4F * static_cast<float>(i) + 3e-5F);
  }
  for (float tiny = 1e-30F; tiny < 1; tiny *= 3)
    x.insert(x.end(), {tiny, -tiny});
  return x;
}

TEST(ExactGelu, IsWithinSixUlpOfTheErrorFunction) {
  const std::vector<float> x = GeluPoints();
  const std::vector<float> y = ExactGelu(x);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact =
        0.5 * x[i] * std::erfc(-double{x[i]} / std::numbers::sqrt2);
    const double ulp =
        std::nextafterf(std::fabs(y[i]), INFINITY) - double{std::fabs(y[i])};
    worst = std::max(worst, std::fabs(y[i] - exact) / ulp);
  }
  EXPECT_LT(worst, 6.0);
  EXPECT_GT(worst, 0.5);
}

TEST(ExactGelu, HasItsSlopeWithinAQuarterOfAMillionth) {
  const std::vector<float> x = GeluPoints();
  const std::vector<float> slope = ExactGeluSlope(x);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    const double exact =
        0.5 * std::erfc(-at / std::numbers::sqrt2) +
        at * std::exp(-0.5 * at * at) / std::sqrt(2 * std::numbers::pi);
    worst = std::max(worst, std::fabs(slope[i] - exact));
  }
  EXPECT_LT(worst, 2.5e-7);
}

TEST(ExactGelu, ReachesItsLimitsFarOut) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(ExactGelu({50.0F, 1e30F, infinity, -50.0F, -1e30F, -infinity}),
            (std::vector<float>{50.0F, 1e30F, infinity, 0.0F, 0.0F, 0.0F}));
  EXPECT_EQ(ExactGeluSlope({50.0F, infinity, -50.0F, -infinity}),
            (std::vector<float>{1.0F, 1.0F, 0.0F, 0.0F}));
  EXPECT_TRUE(std::isnan(ExactGelu({nan})[0]));
  EXPECT_TRUE(std::isnan(ExactGeluSlope({-nan})[0]));
}

TEST(Swiglu, IsGateTimesSigmoidTimesUp) {
  const std::vector<float> x = Normals("x", 2 * 2 * 5);
  std::vector<float> y(10);
  KernelsFor(DetectIsa()).swiglu_forward({x.data(), 2, 5, y.data()});
  for (int64_t r = 0; r < 2; ++r) {
    for (int64_t c = 0; c < 5; ++c) {
      const double gate = x[r * 10 + c];
      const double up = x[r * 10 + 5 + c];
      EXPECT_NEAR(y[r * 5 + c], gate / (1 + std::exp(-gate)) * up, 1e-6);
    }
  }
}

TEST(Activation, HasTheSameBitsOnAllIsas) {
  for (const int64_t n : kEdgeSizes) {
    ExpectSameBitsOnAllIsas([n](const Kernels& kernels) {
      std::vector<float> x = Normals("x", 4 * n);
      for (float& value : x) value *= 4;
      const std::vector<float> dy = Normals("dy", 4 * n);
      std::vector<float> y(4 * n), dx(4 * n), gated(2 * n), dgated(4 * n);
      kernels.gelu_forward({x.data(), 4 * n, y.data()});
      kernels.gelu_backward({dy.data(), x.data(), 4 * n, dx.data()});
      std::vector<float> exact(4 * n), exact_dx(4 * n);
      kernels.exact_gelu_forward({x.data(), 4 * n, exact.data()});
      kernels.exact_gelu_backward(
          {dy.data(), x.data(), 4 * n, exact_dx.data()});
      kernels.swiglu_forward({x.data(), 2, n, gated.data()});
      kernels.swiglu_backward({dy.data(), x.data(), 2, n, dgated.data()});
      for (const auto* part : {&dx, &gated, &dgated, &exact, &exact_dx})
        Append(*part, y);
      return y;
    });
  }
}

}  // namespace
}  // namespace shardshift::kernels
