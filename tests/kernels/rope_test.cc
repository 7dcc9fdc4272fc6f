// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "kernels/rope_table.h"
#include "tests/kernels/kernel_test.h"

namespace shardshift::kernels {
namespace {

struct Table {
  std::vector<float> cos, sin;
};

Table MakeTable(int64_t positions, int64_t head_dim) {
  const int64_t count = positions * head_dim / 2;
  Table table = {std::vector<float>(count), std::vector<float>(count)};
  BuildRopeTable(RopeFrequencies({.head_dim = head_dim}), positions,
                 table.cos.data(), table.sin.data());
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

TEST(RopeFrequencies, AreDividedByTheInterpolation) {
  const std::vector<double> plain = RopeFrequencies({.head_dim = 8});
  const std::vector<double> slow =
      RopeFrequencies({.head_dim = 8, .interpolation = 4.0});
  for (int64_t j = 0; j < 4; ++j) EXPECT_EQ(slow[j], plain[j] / 4);
}

// Numbers of transformers 5.24 (rope_type llama3) in double, head_dim 16.
TEST(RopeFrequencies, AreThoseOfLlama3) {
  const std::vector<double> expected = {1.0,
                                        0.0794030091792082,
                                        0.004700753866357992,
                                        0.0009115830921521386,
                                        0.00017677669529663688,
                                        3.428102195952591e-05,
                                        6.647869871181236e-06,
                                        1.2891731721515574e-06};
  const std::vector<double> scaled =
      RopeFrequencies({.base = 5e5,
                       .head_dim = 16,
                       .scaling = RopeScaling{.original_max_positions = 64}});
  ASSERT_EQ(scaled.size(), expected.size());
  for (size_t j = 0; j < expected.size(); ++j) {
    EXPECT_NEAR(scaled[j], expected[j], 2e-15 * expected[j]) << j;
  }
}

TEST(Rope, RotatesNeighboursIfInterleaved) {
  const Table table = MakeTable(8, 6);
  std::vector<float> x = Normals("x", 6);
  const std::vector<float> before = x;
  KernelsFor(DetectIsa())
      .rope({.x = x.data(),
             .rows = 1,
             .row_stride = 6,
             .num_heads = 1,
             .head_stride = 6,
             .head_dim = 6,
             .first_position = 5,
             .cos = table.cos.data(),
             .sin = table.sin.data(),
             .interleaved = true});
  for (int64_t j = 0; j < 3; ++j) {
    const double c = table.cos[5 * 3 + j];
    const double s = table.sin[5 * 3 + j];
    const double a = before[2 * j];
    const double b = before[2 * j + 1];
    EXPECT_NEAR(x[2 * j], a * c - b * s, 1e-6) << j;
    EXPECT_NEAR(x[2 * j + 1], b * c + a * s, 1e-6) << j;
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
  for (const bool interleaved : {false, true}) {
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
                     .sin = table.sin.data(),
                     .interleaved = interleaved};
    KernelsFor(DetectIsa()).rope(args);
    EXPECT_NE(x, before);
    args.inverse = true;
    KernelsFor(DetectIsa()).rope(args);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], before[i], 1e-6);
  }
}

TEST(Rope, HasTheSameBitsOnAllIsas) {
  for (const int64_t half : kEdgeSizes) {
    const Table table = MakeTable(4, 2 * half);
    for (const auto& [inverse, interleaved] : {std::pair(false, false),
                                               {true, false},
                                               {false, true},
                                               {true, true}}) {
      ExpectSameBitsOnAllIsas([&, inverse = inverse, interleaved = interleaved](
                                  const Kernels& kernels) {
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
                      .inverse = inverse,
                      .interleaved = interleaved});
        return x;
      });
    }
  }
}

}  // namespace
}  // namespace shardshift::kernels
