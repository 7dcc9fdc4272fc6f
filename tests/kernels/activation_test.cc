// SPDX-License-Identifier: Apache-2.0
#include "kernels/activation.h"

#include <gtest/gtest.h>

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
      kernels.swiglu_forward({x.data(), 2, n, gated.data()});
      kernels.swiglu_backward({dy.data(), x.data(), 2, n, dgated.data()});
      for (const auto* part : {&dx, &gated, &dgated}) Append(*part, y);
      return y;
    });
  }
}

}  // namespace
}  // namespace shardshift::kernels
