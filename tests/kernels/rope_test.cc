// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/kernel_test.h"

namespace shardshift::kernels {
namespace {

struct Table {
  std::vector<float> cos, sin;
};

Table MakeTable(int64_t positions, int64_t head_dim) {
  const int64_t count = positions * head_dim / 2;
  Table table = {std::vector<float>(count), std::vector<float>(count)};
  BuildRopeTable(10000.0, positions, head_dim, table.cos.data(),
                 table.sin.data());
  return table;
}

TEST(RopeTable, HoldsCosAndSinOfPositionTimesFrequency) {
  const Table table = MakeTable(5000, 8);
  for (const int64_t p : {0, 1, 17, 4999}) {
    for (int64_t j = 0; j < 4; ++j) {
      const double angle = static_cast<double>(p) *
                           std::pow(10000.0, -static_cast<double>(j) / 4);
      EXPECT_NEAR(table.cos[p * 4 + j], std::cos(angle), 1e-7);
      EXPECT_NEAR(table.sin[p * 4 + j], std::sin(angle), 1e-7);
    }
  }
}

TEST(Rope, RotatesPairsHalfAHeadApart) {
  const Table table = MakeTable(8, 4);
  // Two heads in a row of 12: the last four elements are not a head.
  std::vector<float> x = Normals("x", 2 * 12);
  const std::vector<float> before = x;
  KernelsFor(DetectIsa())
      .rope({.x = x.data(),
             .rows = 2,
             .row_stride = 12,
             .num_heads = 2,
             .head_stride = 4,
             .head_dim = 4,
             .first_position = 3,
             .cos = table.cos.data(),
             .sin = table.sin.data()});
  for (int64_t r = 0; r < 2; ++r) {
    for (int64_t i = 0; i < 12; ++i) {
      const int64_t at = r * 12 + i;
      const int64_t j = i % 2;
      const double c = table.cos[(3 + r) * 2 + j];
      const double s = table.sin[(3 + r) * 2 + j];
      double expected = before[at];
      if (i < 8) {
        expected = i % 4 < 2 ? before[at] * c - before[at + 2] * s
                             : before[at] * c + before[at - 2] * s;
      }
      EXPECT_NEAR(x[at], expected, 1e-6) << at;
    }
  }
}

TEST(Rope, InverseUndoesTheRotation) {
  const Table table = MakeTable(8, 6);
  std::vector<float> x = Normals("x", 8 * 6);
  const std::vector<float> before = x;
  RopeArgs args = {.x = x.data(),
                   .rows = 8,
                   .row_stride = 6,
                   .num_heads = 1,
                   .head_stride = 6,
                   .head_dim = 6,
                   .first_position = 0,
                   .cos = table.cos.data(),
                   .sin = table.sin.data()};
  KernelsFor(DetectIsa()).rope(args);
  EXPECT_NE(x, before);
  args.inverse = true;
  KernelsFor(DetectIsa()).rope(args);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], before[i], 1e-6);
}

TEST(Rope, HasTheSameBitsOnAllIsas) {
  for (const int64_t half : kEdgeSizes) {
    const Table table = MakeTable(4, 2 * half);
    for (const bool inverse : {false, true}) {
      ExpectSameBitsOnAllIsas([&](const Kernels& kernels) {
        std::vector<float> x = Normals("x", 3 * 4 * half);
        kernels.rope({.x = x.data(),
                      .rows = 3,
                      .row_stride = 4 * half,
                      .num_heads = 2,
                      .head_stride = 2 * half,
                      .head_dim = 2 * half,
                      .first_position = 1,
                      .cos = table.cos.data(),
                      .sin = table.sin.data(),
                      .inverse = inverse});
        return x;
      });
    }
  }
}

}  // namespace
}  // namespace shardshift::kernels
