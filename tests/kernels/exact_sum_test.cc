// SPDX-License-Identifier: Apache-2.0
#include "kernels/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/kernel_test.h"

namespace shardshift::kernels {
namespace {

ExactSumOfSquares::Words WordsOf(std::span<const float> values) {
  ExactSumOfSquares sum;
  sum.Add(values);
  return sum.ToWords();
}

double SumOf(std::span<const float> values) {
  return ExactSumOfSquares::FromWords(WordsOf(values)).ToDouble();
}

// Normals over 60 decades.
std::vector<float> WideValues(int64_t count) {
  std::vector<float> values = Normals("wide", count);
  for (int64_t i = 0; i < count; ++i) {
    values[i] *= std::ldexp(1.0F, static_cast<int>(i * 37 % 200) - 100);
  }
  return values;
}

TEST(ExactSumOfSquares, IsExactForSingleValues) {
  EXPECT_EQ(SumOf({}), 0.0);
  for (const float value :
       {0.0F, -3.0F, 1.0F / 3.0F, std::numeric_limits<float>::denorm_min(),
        -std::numeric_limits<float>::min(),
        std::numeric_limits<float>::max()}) {
    const double exact = static_cast<double>(value) * value;
    EXPECT_EQ(SumOf(std::vector<float>{value}), exact) << value;
  }
}

TEST(ExactSumOfSquares, KeepsWhatFloatingPointLoses) {
  // In double the ones would be lost beside 2^60, one after the other.
  std::vector<float> values(4096, 1.0F);
  values[0] = 0x1p30F;
  EXPECT_EQ(SumOf(values), 0x1p60 + 4096.0);  // 4095 rounds up
}

TEST(ExactSumOfSquares, DoesNotDependOnTheOrder) {
  std::vector<float> values = WideValues(1000);
  const auto expected = WordsOf(values);
  std::reverse(values.begin(), values.end());
  EXPECT_EQ(WordsOf(values), expected);
  for (uint64_t i = 0; i < 1000; ++i) {
    std::swap(values[i], values[Permute(7, i, 1000)]);
  }
  EXPECT_EQ(WordsOf(values), expected);
}

TEST(ExactSumOfSquares, DoesNotDependOnWhoAddsWhat) {
  const std::vector<float> values = WideValues(1000);
  const double expected = SumOf(values);
  for (const size_t cut : {0, 1, 333, 999}) {
    auto words = WordsOf(std::span(values).first(cut));
    const auto rest = WordsOf(std::span(values).subspan(cut));
    for (size_t i = 0; i < words.size(); ++i) words[i] += rest[i];
    EXPECT_EQ(ExactSumOfSquares::FromWords(words).ToDouble(), expected) << cut;
    EXPECT_EQ(ExactSumOfSquares::FromWords(words).ToWords(), WordsOf(values));
  }
}

TEST(ExactSumOfSquares, AgreesWithLongDouble) {
  const std::vector<float> values = Normals("x", 10000);
  long double sum = 0;
  for (const float v : values) sum += static_cast<long double>(v) * v;
  EXPECT_NEAR(SumOf(values), static_cast<double>(sum), 1e-11);
}

TEST(ExactSumOfSquares, FlagsNonFiniteValues) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(SumOf(std::vector<float>{1, -inf, 2})));
  EXPECT_TRUE(std::isnan(SumOf(std::vector<float>{std::nanf("")})));
  const auto words = WordsOf(std::vector<float>{1, inf, std::nanf("")});
  EXPECT_EQ(words[ExactSumOfSquares::kDigits], 2);
}

}  // namespace
}  // namespace shardshift::kernels
