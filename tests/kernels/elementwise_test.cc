// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise.h"

#include <gtest/gtest.h>

#include "tests/kernels/kernel_test.h"

namespace shardshift::kernels {
namespace {

TEST(AddBias, AddsToEachRowAndLeavesTheGapBetweenRows) {
  std::vector<float> x = {1, 2, 90, 3, 4, 91};
  const std::vector<float> bias = {10, 20};
  KernelsFor(DetectIsa())
      .add_bias(
          {.x = x.data(), .ldx = 3, .bias = bias.data(), .rows = 2, .cols = 2});
  EXPECT_EQ(x, (std::vector<float>{11, 22, 90, 13, 24, 91}));
}

TEST(ColumnSum, GoesOnFromTheAccumulatorInRowOrder) {
  // 1 is lost beside 1e8, so any other order gives another sum.
  const std::vector<float> dy = {1, -1e8F, 1};
  std::vector<float> acc = {1e8F};
  KernelsFor(DetectIsa())
      .column_sum({.dy = dy.data(),
                   .ld_dy = 1,
                   .rows = 3,
                   .cols = 1,
                   .acc = acc.data()});
  EXPECT_EQ(acc[0], 1.0F);
}

TEST(Elementwise, HasTheSameBitsOnAllIsas) {
  for (const int64_t n : kEdgeSizes) {
    ExpectSameBitsOnAllIsas([n](const Kernels& kernels) {
      // One element off, so that nothing is aligned.
      std::vector<float> x = Normals("x", 3 * n + 1);
      const std::vector<float> b = Normals("b", n);
      std::vector<float> acc = Normals("acc", n);
      kernels.add_bias(
          {.x = &x[1], .ldx = n, .bias = b.data(), .rows = 3, .cols = n});
      kernels.column_sum(
          {.dy = &x[1], .ld_dy = n, .rows = 3, .cols = n, .acc = acc.data()});
      kernels.scale({.x = acc.data(), .count = n, .factor = 0.3F});
      std::vector<float> sum(n);
      kernels.add({.a = &x[1], .b = acc.data(), .count = n, .out = sum.data()});
      Append(sum, x);
      return x;
    });
  }
}

}  // namespace
}  // namespace shardshift::kernels
