// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/zero_slices.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::HasSubstr;

// The worked examples of distributed-optimizer.md 4.2 and 4.3.
TEST(ZeroSlicesTest, WorkedExamples) {
  const std::vector<int64_t> sizes = {10, 300, 100};
  ASSERT_OK_AND_ASSIGN(const ZeroArray joined, SliceJoined(sizes, {}, 4, 2));
  EXPECT_EQ(joined.size, 104);
  EXPECT_EQ(joined.used, 104);
  ASSERT_EQ(joined.slices.size(), 2);
  EXPECT_EQ(joined.slices[0].first, 198);  // 94 and 104 are on others
  EXPECT_EQ(joined.slices[0].last, 300);
  EXPECT_EQ(joined.slices[1].offset, 102);
  EXPECT_EQ(joined.slices[1].last, 2);
  ASSERT_OK_AND_ASSIGN(const ZeroArray last, SliceJoined(sizes, {}, 4, 3));
  EXPECT_EQ(last.used, 98);

  ASSERT_OK_AND_ASSIGN(const ZeroArray each, SliceEach(sizes, 4, 3));
  EXPECT_EQ(each.size, 103);
  EXPECT_EQ(each.slices[0].first, 9);
  EXPECT_EQ(each.slices[0].last, 10);
  EXPECT_EQ(each.slices[1].offset, 3);
  EXPECT_EQ(each.slices[2].offset, 78);
}

TEST(ZeroSlicesTest, AGroupSmallerThanItsPaddingLeavesRanksEmpty) {
  const std::vector<int64_t> sizes = {3, 1};
  const std::vector<int64_t> used = {2, 2, 0, 0};
  for (int64_t rank = 0; rank < 4; ++rank) {
    ASSERT_OK_AND_ASSIGN(const ZeroArray array,
                         SliceJoined(sizes, {}, 4, rank));
    EXPECT_EQ(array.size, 2);
    EXPECT_EQ(array.used, used[rank]);
    EXPECT_EQ(array.slices.empty(), used[rank] == 0);
  }
}

// Numbers written one by one into the arrays of all ranks are found again.
TEST(ZeroSlicesTest, EveryElementIsThereOnce) {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    const int64_t ranks = 1 + static_cast<int64_t>(random() % 5);
    const bool joins = random() % 2 == 0;
    std::vector<int64_t> sizes(1 + random() % 5);
    std::vector<int64_t> gaps(sizes.size());
    for (int64_t& size : sizes) size = static_cast<int64_t>(random() % 12);
    for (int64_t& gap : gaps) gap = static_cast<int64_t>(random() % 3);
    using Element = std::pair<size_t, int64_t>;
    std::vector<std::vector<Element>> arrays(ranks);
    const Element padding = {sizes.size(), 0};
    if (joins) {
      std::vector<Element> all;
      for (size_t i = 0; i < sizes.size(); ++i) {
        for (int64_t e = 0; e < sizes[i]; ++e) all.emplace_back(i, e);
        all.insert(all.end(), gaps[i], padding);
      }
      while (all.size() % (2 * ranks) != 0) all.push_back(padding);
      const size_t part = all.size() / ranks;
      for (size_t i = 0; i < all.size(); ++i) {
        arrays[i / part].push_back(all[i]);
      }
    } else {
      for (size_t i = 0; i < sizes.size(); ++i) {
        const int64_t part = (sizes[i] + ranks - 1) / ranks;
        for (int64_t e = 0; e < part * ranks; ++e) {
          arrays[e / part].push_back(e < sizes[i] ? Element(i, e) : padding);
        }
      }
    }
    std::vector<int64_t> seen(sizes.size());
    for (int64_t rank = 0; rank < ranks; ++rank) {
      ASSERT_OK_AND_ASSIGN(const ZeroArray array,
                           joins ? SliceJoined(sizes, gaps, ranks, rank)
                                 : SliceEach(sizes, ranks, rank));
      ASSERT_EQ(array.size, std::ssize(arrays[rank]));
      for (const ZeroSlice& slice : array.slices) {
        for (int64_t e = slice.first; e < slice.last; ++e) {
          EXPECT_EQ(arrays[rank][slice.offset + e - slice.first],
                    Element(slice.parameter, e));
          ++seen[slice.parameter];
        }
      }
    }
    EXPECT_EQ(seen, sizes);
  }
}

TEST(ZeroSlicesTest, RefusesWhatDoesNotAddUp) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(
      SliceJoined(std::vector<int64_t>{kMax, 2}, {}, 2, 0),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("more elements")));
  EXPECT_THAT(
      SliceJoined(std::vector<int64_t>{5}, std::vector<int64_t>{-1}, 2, 0),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("2^60")));
  EXPECT_THAT(SliceEach(std::vector<int64_t>{kMax, kMax}, 1, 0),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("2^60")));
}

}  // namespace
}  // namespace shardshift::reshard
