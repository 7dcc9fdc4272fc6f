// SPDX-License-Identifier: Apache-2.0
#include "tools/tensor_stats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/testutil/status_matchers.h"

namespace shardshift {
namespace {

using ckpt::DType;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <typename T>
ValueSums SumsOf(DType dtype, const std::vector<T>& values) {
  ValueSums sums;
  sums.Add(dtype, std::as_bytes(std::span(values)));
  return sums;
}

template <typename T>
ValueStats StatsOf(DType dtype, const std::vector<T>& values) {
  return SumsOf(dtype, values).Stats();
}

TEST(ValueStats, AreThoseOfAPlainLoop) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.25f, 3);
  std::vector<float> values(10000);
  long double sum = 0;
  long double squares = 0;
  for (float& value : values) {
    value = normal(random);
    sum += value;
    squares += static_cast<long double>(value) * value;
  }
  const ValueStats stats = StatsOf(DType::kF32, values);
  EXPECT_EQ(stats.num_finite, 10000);
  EXPECT_EQ(stats.min, *std::min_element(values.begin(), values.end()));
  EXPECT_EQ(stats.max, *std::max_element(values.begin(), values.end()));
  // All is exact until the end, where each power of two rounds once.
  EXPECT_NEAR(stats.mean, static_cast<double>(sum / 10000), 1e-15);
  EXPECT_NEAR(stats.rms, static_cast<double>(std::sqrt(squares / 10000)),
              1e-14);
}

TEST(ValueStats, DoNotDependOnOrderNorOnWhoAddsWhat) {
  std::mt19937 random(8);
  std::vector<double> values;
  for (int i = 0; i < 3000; ++i) {
    values.push_back(std::ldexp(static_cast<double>(random()) - 2e9,
                                static_cast<int>(random() % 400) - 200));
  }
  values.insert(values.end(), {0.0, -0.0, kNan, kInfinity});
  const ValueStats whole = StatsOf(DType::kF64, values);
  std::shuffle(values.begin(), values.end(), random);
  ValueSums sums = SumsOf(
      DType::kF64, std::vector<double>(values.begin() + 1000, values.end()));
  sums.Add(SumsOf(DType::kF64,
                  std::vector<double>(values.begin(), values.begin() + 1000)));
  const ValueStats stats = sums.Stats();
  EXPECT_EQ(stats.mean, whole.mean);
  EXPECT_EQ(stats.rms, whole.rms);
  EXPECT_EQ(stats.min, whole.min);
  EXPECT_EQ(stats.num_zero, 2);
  EXPECT_EQ(stats.histogram.size(), whole.histogram.size());
}

TEST(ValueStats, KeepAMeanThatLargeTermsWouldSwallow) {
  EXPECT_EQ(StatsOf<double>(DType::kF64, {1e300, 4, -1e300, -1}).mean, 0.75);
}

TEST(ValueStats, CountWhatIsNotFiniteAndLeaveItOut) {
  const ValueStats stats =
      StatsOf<double>(DType::kF64, {kNan, 3, kInfinity, -kInfinity, -1, -kNan});
  EXPECT_EQ(stats.num_nan, 2);
  EXPECT_EQ(stats.num_infinite, 2);
  EXPECT_EQ(stats.num_finite, 2);
  EXPECT_EQ(stats.min, -1);
  EXPECT_EQ(stats.max, 3);
  EXPECT_EQ(stats.mean, 1);
}

TEST(ValueStats, ReachTheEndsOfADouble) {
  const double largest = std::numeric_limits<double>::max();
  const double least = std::numeric_limits<double>::denorm_min();
  const ValueStats large = StatsOf<double>(DType::kF64, {largest, -largest});
  EXPECT_EQ(large.mean, 0);
  EXPECT_NEAR(large.rms / largest, 1, 1e-9);
  const ValueStats small = StatsOf<double>(DType::kF64, {3 * least, least});
  EXPECT_EQ(small.mean, 2 * least);
  EXPECT_EQ(small.histogram.front().log2, -1074);
  EXPECT_EQ(small.histogram.back().log2, -1073);
}

TEST(ValueStats, BucketByThePowerOfTwo) {
  const ValueStats stats = StatsOf<float>(
      DType::kF32, {0, 1, -1.5f, 1.9999999f, 2, 0.5f, 0.4999999f});
  std::vector<std::pair<int64_t, int64_t>> buckets;
  for (const auto& bucket : stats.histogram) {
    buckets.emplace_back(bucket.log2, bucket.count);
  }
  EXPECT_THAT(buckets,
              ::testing::ElementsAre(std::pair(-2, 1), std::pair(-1, 1),
                                     std::pair(0, 3), std::pair(1, 1)));
  EXPECT_EQ(stats.num_zero, 1);
}

TEST(ValueStats, TakeAComplexNumberAsTwo) {
  EXPECT_EQ(StatsOf<float>(DType::kC64, {1, -5}).num_finite, 2);
  EXPECT_EQ(StatsOf<float>(DType::kC64, {1, -5}).min, -5);
}

}  // namespace
}  // namespace shardshift
