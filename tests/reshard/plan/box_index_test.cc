// SPDX-License-Identifier: Apache-2.0
#include "reshard/plan/box_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/ckpt/sample.h"
#include "tests/reshard/sample.h"

namespace shardshift::reshard {
namespace {

using ckpt::Box;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

Box RandomPart(const Box& whole, std::mt19937& random) {
  Box part = whole;
  for (size_t d = 0; d < whole.start.size(); ++d) {
    const int64_t begin = Uniform(random, 0, whole.extent[d] - 1);
    part.start[d] += begin;
    part.extent[d] = Uniform(random, 0, whole.extent[d] - begin);
  }
  return part;
}

bool HaveCommonElement(const Box& a, const Box& b) {
  for (size_t d = 0; d < a.start.size(); ++d) {
    bool common = false;
    for (int64_t i = a.start[d]; i < a.start[d] + a.extent[d]; ++i) {
      common = common || (i >= b.start[d] && i < b.start[d] + b.extent[d]);
    }
    if (!common) return false;
  }
  return true;
}

TEST(BoxIndex, FindsWhatComparingAllPairsFinds) {
  std::mt19937 random(71);
  for (int round = 0; round < 300; ++round) {
    const Box whole = RandomBox(4, random);
    std::vector<Box> boxes(Uniform(random, 0, 60));
    for (Box& box : boxes) box = RandomPart(whole, random);
    const BoxIndex index(boxes);
    bool any = false;
    for (size_t i = 0; i < boxes.size(); ++i) {
      std::vector<int64_t> expected;
      for (size_t j = 0; j < boxes.size(); ++j) {
        if (!HaveCommonElement(boxes[i], boxes[j])) continue;
        expected.push_back(static_cast<int64_t>(j));
        any = any || i != j;
      }
      std::vector<int64_t> found;
      index.AppendOverlaps(boxes[i], found);
      EXPECT_THAT(found, UnorderedElementsAreArray(expected));
    }
    const auto pair = index.AnyOverlap();
    ASSERT_EQ(pair.has_value(), any);
    if (!any) continue;
    EXPECT_LT(pair->first, pair->second);
    EXPECT_TRUE(HaveCommonElement(boxes[pair->first], boxes[pair->second]));
  }
}

TEST(BoxIndex, HoldsScalarsAndNothing) {
  const std::vector<Box> scalars(20);
  std::vector<int64_t> found;
  BoxIndex(scalars).AppendOverlaps(Box{}, found);
  EXPECT_EQ(found.size(), 20);
  const std::vector<Box> empty = {{{3}, {0}}};
  found.clear();
  BoxIndex(empty).AppendOverlaps({{0}, {8}}, found);
  BoxIndex().AppendOverlaps({{0}, {8}}, found);
  EXPECT_THAT(found, IsEmpty());
  EXPECT_EQ(BoxIndex().AnyOverlap(), std::nullopt);
}

TEST(BoxIndex, TakesBoxesThatEndAtTheLastInteger) {
  constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
  std::vector<Box> boxes;
  for (int64_t i = 0; i < 40; ++i) boxes.push_back({{kEnd - 40 + i}, {1}});
  boxes.push_back({{0}, {kEnd - 40}});
  const BoxIndex index(boxes);
  EXPECT_EQ(index.AnyOverlap(), std::nullopt);
  std::vector<int64_t> found;
  index.AppendOverlaps({{kEnd - 41}, {2}}, found);
  std::sort(found.begin(), found.end());
  EXPECT_THAT(found, ElementsAre(0, 40));
}

// Cuts that defeat an order along one dim.

constexpr int64_t kBoxes = 20'000;

std::vector<Box> GridOf(int64_t side) {
  std::vector<Box> boxes;
  for (int64_t i = 0; i < side * side; ++i) {
    boxes.push_back({{i / side * 3, i % side * 3}, {3, 3}});
  }
  return boxes;
}

// Rows beside one box as long as all of them.
std::vector<Box> RowsBesideOneHuge() {
  std::vector<Box> boxes = {{{0, 8}, {kBoxes, 8}}};
  for (int64_t i = 0; i < kBoxes; ++i) boxes.push_back({{i, 0}, {1, 8}});
  return boxes;
}

// Columns that are each cut somewhere.
std::vector<Box> ColumnsCutAnywhere() {
  std::mt19937 random(72);
  std::vector<Box> boxes;
  for (int64_t i = 0; i < kBoxes / 2; ++i) {
    const int64_t cut = Uniform(random, 1, 999'999);
    boxes.push_back({{0, i}, {cut, 1}});
    boxes.push_back({{cut, i}, {1'000'000 - cut, 1}});
  }
  return boxes;
}

// Long rows above long columns.
std::vector<Box> RowsAboveColumns() {
  std::vector<Box> boxes;
  for (int64_t i = 0; i < kBoxes / 2; ++i) {
    boxes.push_back({{i, 0}, {1, kBoxes / 2}});
    boxes.push_back({{kBoxes / 2, i}, {kBoxes / 2, 1}});
  }
  return boxes;
}

// Halves of halves, down to single elements, and those.
std::vector<Box> AllSizes() {
  std::vector<Box> boxes;
  for (int64_t size = int64_t{1} << 40; size > kBoxes; size /= 2) {
    boxes.push_back({{size}, {size}});
  }
  const int64_t rest = boxes.back().start[0];
  for (int64_t i = 0; i < rest; ++i) boxes.push_back({{i}, {1}});
  return boxes;
}

TEST(BoxIndex, LooksAtFewBoxesHoweverTheyAreCut) {
  for (const std::vector<Box>& boxes :
       {GridOf(141), RowsBesideOneHuge(), ColumnsCutAnywhere(),
        RowsAboveColumns(), AllSizes()}) {
    SCOPED_TRACE(ckpt::ToString(boxes[0]));
    const BoxIndex index(boxes);
    EXPECT_EQ(index.AnyOverlap(), std::nullopt);
    int64_t looked_at = 0;
    std::vector<int64_t> found;
    for (const Box& box : boxes) looked_at += index.AppendOverlaps(box, found);
    EXPECT_EQ(found.size(), boxes.size());
    const auto size = static_cast<double>(boxes.size());
    EXPECT_LT(static_cast<double>(looked_at), 6 * size * std::log2(size));
  }
}

}  // namespace
}  // namespace shardshift::reshard
