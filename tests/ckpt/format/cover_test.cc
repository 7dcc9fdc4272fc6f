// SPDX-License-Identifier: Apache-2.0
#include "ckpt/format/cover.h"

#include <random>

#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::HasSubstr;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(CheckExactCover, AcceptsRandomPartitions) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    Box whole;
    for (auto d = random() % 5; d > 0; --d) {
      whole.start.push_back(0);
      whole.extent.push_back(1 + static_cast<int64_t>(random() % 6));
    }
    EXPECT_OK(CheckExactCover(whole, RandomPartition(whole, 20, random)));
  }
}

// Whether each element is in exactly one box, by counting.
bool CoversByCounting(const Box& whole, const std::vector<Box>& boxes) {
  for (int64_t i = 0; i < whole.extent[0]; ++i) {
    for (int64_t j = 0; j < whole.extent[1]; ++j) {
      int count = 0;
      for (const Box& box : boxes) count += Contains(box, {{i, j}, {1, 1}});
      if (count != 1) return false;
    }
  }
  return true;
}

TEST(CheckExactCover, AgreesWithCountingOnBoxesMovedAtRandom) {
  std::mt19937 random(12);
  const Box whole = {{0, 0}, {4, 4}};
  int num_covers = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<Box> boxes = RandomPartition(whole, 5, random);
    Box& moved = boxes[random() % boxes.size()];
    const size_t dim = random() % 2;
    moved.start[dim] = static_cast<int64_t>(
        random() % static_cast<uint64_t>(5 - moved.extent[dim]));
    const bool covers = CoversByCounting(whole, boxes);
    num_covers += covers;
    EXPECT_EQ(CheckExactCover(whole, boxes).ok(), covers);
  }
  EXPECT_GT(num_covers, 100);
  EXPECT_LT(num_covers, 4900);
}

TEST(CheckExactCover, AcceptsAPinwheelThatNoCutTakesApart) {
  EXPECT_OK(CheckExactCover({{0, 0}, {3, 3}}, {{{0, 0}, {1, 2}},
                                               {{0, 2}, {2, 1}},
                                               {{2, 1}, {1, 2}},
                                               {{1, 0}, {2, 1}},
                                               {{1, 1}, {1, 1}}}));
}

TEST(CheckExactCover, NamesTheGapOrTheOverlap) {
  EXPECT_THAT(CheckExactCover({{0}, {8}}, {{{0}, {4}}, {{5}, {3}}}),
              StatusIs(kInvalid, HasSubstr("nothing holds all of [0:8]")));
  EXPECT_THAT(CheckExactCover({{0}, {8}}, {{{0}, {5}}, {{4}, {4}}}),
              StatusIs(kInvalid, HasSubstr("overlap")));
  // A gap and an overlap of one size.
  EXPECT_THAT(CheckExactCover({{0}, {8}}, {{{0}, {4}}, {{2}, {2}}, {{6}, {2}}}),
              StatusIs(kInvalid, HasSubstr("within")));
}

TEST(CheckExactCover, TakesManyColumnsInLittleTime) {
  constexpr int64_t kColumns = 100'000;
  std::vector<Box> boxes;
  for (int64_t i = 0; i < kColumns; ++i) boxes.push_back({{0, i}, {9, 1}});
  EXPECT_OK(CheckExactCover({{0, 0}, {9, kColumns}}, boxes));
}

}  // namespace
}  // namespace shardshift::ckpt
