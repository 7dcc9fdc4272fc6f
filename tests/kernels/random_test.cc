// SPDX-License-Identifier: Apache-2.0
#include "kernels/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace shardshift::kernels {
namespace {

using testing::ElementsAre;

// Known answers: kat_vectors of the Random123 library, philox4x32 10.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_THAT(Philox4x32({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  const uint32_t ones = 0xffffffff;
  EXPECT_THAT(Philox4x32({ones, ones, ones, ones}, {ones, ones}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                         {0xa4093822, 0x299f31d0}),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(RandomKey, DiffersBySeedAndByName) {
  std::set<uint64_t> keys;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (const char* name : {"", "a", "b", "ab", "ba"}) {
      keys.insert(RandomKey(seed, name));
    }
  }
  EXPECT_EQ(keys.size(), 500U);
}

TEST(Uniform, FillsTheUnitIntervalEvenly) {
  std::vector<int> bins(10);
  for (uint64_t i = 0; i < 100000; ++i) {
    const double u = Uniform(RandomKey(3, "uniform"), i);
    ASSERT_GT(u, 0.0);
    ASSERT_LE(u, 1.0);
    ++bins[static_cast<size_t>(std::ceil(u * 10)) - 1];
  }
  // Five standard deviations.
  for (const int bin : bins) EXPECT_NEAR(bin, 10000, 5 * 95);
}

TEST(Normal, HasTheMomentsOfTheNormalDistribution) {
  const int64_t n = 100000;
  double sum = 0, squares = 0, fourths = 0, products = 0;
  double last = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double x = Normal(RandomKey(3, "normal"), i);
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
    products += x * last;
    last = x;
  }
  EXPECT_NEAR(sum / n, 0, 5 * std::sqrt(1.0 / n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2.0 / n));
  EXPECT_NEAR(fourths / n, 3, 5 * std::sqrt(96.0 / n));
  EXPECT_NEAR(products / n, 0, 5 * std::sqrt(1.0 / n));
}

TEST(Permute, IsABijection) {
  for (const uint64_t n : {1, 2, 3, 4, 5, 15, 16, 17, 100, 1000, 4097}) {
    std::vector<bool> seen(n);
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t image = Permute(RandomKey(1, "order"), i, n);
      ASSERT_LT(image, n);
      EXPECT_FALSE(seen[image]) << n << ": " << i;
      seen[image] = true;
    }
  }
}

TEST(Permute, DependsOnTheKeyAndMixes) {
  int fixed = 0;
  int same = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    fixed += Permute(1, i, 1000) == i ? 1 : 0;
    same += Permute(1, i, 1000) == Permute(2, i, 1000) ? 1 : 0;
  }
  // One is expected of each.
  EXPECT_LT(fixed, 8);
  EXPECT_LT(same, 8);
}

TEST(Permute, WorksOnVeryLargeRanges) {
  const uint64_t n = (uint64_t{1} << 62) - 12345;
  std::set<uint64_t> images;
  for (uint64_t i = 0; i < 1000; ++i) images.insert(Permute(9, i, n));
  EXPECT_EQ(images.size(), 1000U);
  EXPECT_LT(*images.rbegin(), n);
}

}  // namespace
}  // namespace shardshift::kernels
