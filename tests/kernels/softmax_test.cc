// SPDX-License-Identifier: Apache-2.0
#include "kernels/softmax.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/kernel_test.h"

namespace shardshift::kernels {
namespace {

TEST(CausalSoftmax, MatchesItsDefinitionAndIsZeroAboveTheDiagonal) {
  const int64_t size = 19;
  const std::vector<float> scores = Normals("scores", size * size);
  std::vector<float> p = scores;
  KernelsFor(DetectIsa()).causal_softmax_forward({p.data(), size, 0.7F});
  for (int64_t i = 0; i < size; ++i) {
    double sum = 0;
    for (int64_t j = 0; j <= i; ++j)
      sum += std::exp(0.7 * scores[i * size + j]);
    for (int64_t j = 0; j < size; ++j) {
      const double expected =
          j > i ? 0 : std::exp(0.7 * scores[i * size + j]) / sum;
      EXPECT_NEAR(p[i * size + j], expected, 2e-6) << i << "," << j;
    }
  }
}

TEST(CausalSoftmax, SeesTheLastKeysOfItsWindow) {
  for (const int64_t window : {1, 2, 15, 16, 17, 18, 40}) {
    const int64_t size = 40;
    const std::vector<float> scores = Normals("scores", size * size);
    std::vector<float> p = scores;
    KernelsFor(DetectIsa())
        .causal_softmax_forward({p.data(), size, 0.7F, window});
    for (int64_t i = 0; i < size; ++i) {
      const auto sees = [&](int64_t j) { return j <= i && j > i - window; };
      double sum = 0;
      for (int64_t j = 0; j < size; ++j) {
        if (sees(j)) sum += std::exp(0.7 * scores[i * size + j]);
      }
      for (int64_t j = 0; j < size; ++j) {
        const double expected =
            sees(j) ? std::exp(0.7 * scores[i * size + j]) / sum : 0;
        EXPECT_NEAR(p[i * size + j], expected, 2e-6) << i << "," << j;
      }
    }
  }
}

TEST(CausalSoftmax, DoesNotReadWhatLiesBeforeTheWindow) {
  const float nan = std::nanf("");
  std::vector<float> p = {1, nan, nan, nan, 3, nan, nan, nan, 6};
  std::vector<float> dp = p;
  KernelsFor(DetectIsa()).causal_softmax_forward({p.data(), 3, 1.0F, 1});
  KernelsFor(DetectIsa())
      .causal_softmax_backward({p.data(), dp.data(), 3, 1.0F, 1});
  EXPECT_EQ(p, (std::vector<float>{1, 0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(Bits(dp), Bits(std::vector<float>(9, 0.0F)));
}

TEST(CausalSoftmax, DoesNotReadAboveTheDiagonal) {
  const float nan = std::nanf("");
  std::vector<float> p = {1, nan, nan, 2, 3, nan, 4, 5, 6};
  std::vector<float> dp = p;
  KernelsFor(DetectIsa()).causal_softmax_forward({p.data(), 3, 1.0F});
  KernelsFor(DetectIsa())
      .causal_softmax_backward({p.data(), dp.data(), 3, 1.0F});
  for (int64_t i = 0; i < 9; ++i) {
    EXPECT_FALSE(std::isnan(p[i])) << i;
    EXPECT_FALSE(std::isnan(dp[i])) << i;
  }
}

TEST(CausalSoftmax, SurvivesLargeScores) {
  std::vector<float> p = {3e30F, 0, -3e30F, 3e30F};
  KernelsFor(DetectIsa()).causal_softmax_forward({p.data(), 2, 1.0F});
  EXPECT_EQ(p, (std::vector<float>{1, 0, 0, 1}));
}

TEST(CausalSoftmax, HasTheSameBitsOnAllIsas) {
  for (const int64_t size : kEdgeSizes) {
    ExpectSameBitsOnAllIsas([size](const Kernels& kernels) {
      std::vector<float> p = Normals("scores", size * size);
      std::vector<float> dp = Normals("dp", size * size);
      kernels.causal_softmax_forward({p.data(), size, 0.125F});
      kernels.causal_softmax_backward({p.data(), dp.data(), size, 0.125F});
      Append(dp, p);
      return p;
    });
  }
}

}  // namespace
}  // namespace shardshift::kernels
