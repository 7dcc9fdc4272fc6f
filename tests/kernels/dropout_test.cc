// SPDX-License-Identifier: Apache-2.0
#include "kernels/dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/random.h"

namespace shardshift::kernels {
namespace {

constexpr uint64_t kKey = 0x123456789ABCDEF0;

DropoutArgs Args(const std::vector<float>& x, int64_t rows, int64_t cols,
                 std::vector<float>& out) {
  return {.x = x.data(),
          .rows = rows,
          .cols = cols,
          .key = kKey,
          .sample = (int64_t{1} << 40) + 7,
          .probability = 0.3,
          .out = out.data()};
}

TEST(Dropout, KeepsAndScalesWhatTheGeneratorSays) {
  const int64_t rows = 5;
  const int64_t cols = 7;
  std::vector<float> x(rows * cols);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 1.0F + static_cast<float>(i);
  std::vector<float> out(x.size());
  DropoutArgs args = Args(x, rows, cols, out);
  args.first_row = 11;
  Dropout(args);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const uint32_t word = Philox4x32(
          {static_cast<uint32_t>(c / 4), static_cast<uint32_t>(11 + r), 7, 256},
          {0x9ABCDEF0, 0x12345678})[c % 4];
      const bool kept = word < 0.7 * 0x1p32;
      EXPECT_EQ(out[r * cols + c],
                kept ? x[r * cols + c] * static_cast<float>(1 / 0.7) : 0.0F);
    }
  }
}

TEST(Dropout, KeepsTheShareAskedFor) {
  const int64_t rows = 400;
  const int64_t cols = 500;
  const std::vector<float> x(rows * cols, 1.0F);
  std::vector<float> out(x.size());
  Dropout(Args(x, rows, cols, out));
  double kept = 0;
  for (const float value : out) kept += value > 0 ? 1 : 0;
  const auto n = static_cast<double>(x.size());
  // Five standard deviations.
  EXPECT_NEAR(kept / n, 0.7, 5 * std::sqrt(0.7 * 0.3 / n));
}

TEST(Dropout, DoesNotDependOnHowRowsAreCut) {
  const int64_t cols = 6;
  const std::vector<float> x(8 * cols, 1.0F);
  std::vector<float> whole(x.size());
  std::vector<float> parts(x.size());
  Dropout(Args(x, 8, cols, whole));
  DropoutArgs args = Args(x, 3, cols, parts);
  Dropout(args);
  args.first_row = 3;
  args.rows = 5;
  args.x += 3 * cols;
  args.out += 3 * cols;
  Dropout(args);
  EXPECT_EQ(parts, whole);
}

TEST(Dropout, IsAnotherOneForAnotherKeyOrSample) {
  const std::vector<float> x(256, 1.0F);
  std::vector<float> a(256);
  std::vector<float> b(256);
  Dropout(Args(x, 4, 64, a));
  DropoutArgs args = Args(x, 4, 64, b);
  args.key += 1;
  Dropout(args);
  EXPECT_NE(a, b);
  args = Args(x, 4, 64, b);
  args.sample += 1;
  Dropout(args);
  EXPECT_NE(a, b);
}

TEST(Dropout, CausalRowsEndAtTheDiagonal) {
  const int64_t size = 9;
  std::vector<float> x(size * size, 2.0F);
  std::vector<float> whole(x.size());
  Dropout(Args(x, size, size, whole));
  for (int64_t r = 0; r < size; ++r) {
    for (int64_t c = r + 1; c < size; ++c) {
      x[r * size + c] = std::nanf("");
      whole[r * size + c] = 0.0F;
    }
  }
  std::vector<float> causal(x.size(), 5.0F);
  DropoutArgs args = Args(x, size, size, causal);
  args.causal = true;
  Dropout(args);
  EXPECT_EQ(causal, whole);
}

}  // namespace
}  // namespace shardshift::kernels
