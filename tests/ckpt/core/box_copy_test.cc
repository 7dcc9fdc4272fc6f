// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/box_copy.h"

#include <numeric>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::vector<std::pair<int64_t, int64_t>> Runs(const Box& box, const Box& what) {
  std::vector<std::pair<int64_t, int64_t>> runs;
  ForEachRun(box, what, [&](int64_t offset, int64_t count) {
    runs.emplace_back(offset, count);
  });
  return runs;
}

TEST(ForEachRun, JoinsWholeRows) {
  EXPECT_THAT(Runs({{0, 0}, {6, 4}}, {{2, 0}, {3, 4}}),
              ElementsAre(Pair(8, 12)));
}

TEST(ForEachRun, CutsAtColumns) {
  EXPECT_THAT(Runs({{0, 0}, {3, 4}}, {{1, 1}, {2, 2}}),
              ElementsAre(Pair(5, 2), Pair(9, 2)));
}

TEST(ForEachRun, GivesAScalarAsOneRun) {
  EXPECT_THAT(Runs({}, {}), ElementsAre(Pair(0, 1)));
}

TEST(ForEachRun, GivesNothingForAnEmptyBox) {
  EXPECT_TRUE(Runs({{0, 0}, {3, 4}}, {{1, 1}, {0, 2}}).empty());
}

// Index of `position` in the row-major image of `box`, by plain division.
Shape IndexAt(const Box& box, int64_t position) {
  Shape index = box.start;
  for (size_t d = index.size(); d-- > 0;) {
    index[d] += position % box.extent[d];
    position /= box.extent[d];
  }
  return index;
}

int64_t PositionOf(const Box& box, const Shape& index) {
  int64_t position = 0;
  for (size_t d = 0; d < index.size(); ++d) {
    position = position * box.extent[d] + index[d] - box.start[d];
  }
  return position;
}

// A box that contains `inner`, with random margins.
Box Around(const Box& inner, std::mt19937& random) {
  Box box = inner;
  for (size_t d = 0; d < box.start.size(); ++d) {
    const auto before = static_cast<int64_t>(random() % 3);
    box.start[d] -= before;
    box.extent[d] += before + static_cast<int64_t>(random() % 3);
  }
  return box;
}

TEST(CopyBox, MovesEachElementToItsIndexAndNoOther) {
  std::mt19937 random(20240601);
  for (int round = 0; round < 2000; ++round) {
    Box what;
    for (auto d = random() % 6; d > 0; --d) {
      what.start.push_back(10 + static_cast<int64_t>(random() % 3));
      what.extent.push_back(static_cast<int64_t>(random() % 4));
    }
    const Box src_box = Around(what, random);
    const Box dst_box = Around(what, random);
    std::vector<int64_t> src(NumElements(src_box));
    std::iota(src.begin(), src.end(), 1);
    std::vector<int64_t> dst(NumElements(dst_box), -1);
    CopyBox(reinterpret_cast<const std::byte*>(src.data()), src_box,
            reinterpret_cast<std::byte*>(dst.data()), dst_box, what, 8);
    for (size_t i = 0; i < dst.size(); ++i) {
      const Shape index = IndexAt(dst_box, static_cast<int64_t>(i));
      const bool moved = Contains(what, {index, Shape(index.size(), 1)});
      EXPECT_EQ(dst[i], moved ? src[PositionOf(src_box, index)] : -1);
    }
  }
}

TEST(OnlyRunPair, IsTheRunWhereThereIsOne) {
  std::mt19937 random(7);
  int num_found = 0;
  for (int round = 0; round < 2000; ++round) {
    Box what;
    for (auto d = random() % 4; d > 0; --d) {
      what.start.push_back(10);
      what.extent.push_back(static_cast<int64_t>(random() % 3));
    }
    const Box src_box = Around(what, random);
    const Box dst_box = Around(what, random);
    std::vector<std::tuple<int64_t, int64_t, int64_t>> runs;
    ForEachRunPair(src_box, dst_box, what,
                   [&](int64_t src, int64_t dst, int64_t count) {
                     runs.emplace_back(src, dst, count);
                   });
    const std::optional<RunPair> only = OnlyRunPair(src_box, dst_box, what);
    ASSERT_EQ(only.has_value(), runs.size() == 1);
    if (!only) continue;
    ++num_found;
    EXPECT_EQ(std::tuple(only->src_offset, only->dst_offset, only->count),
              runs.front());
  }
  EXPECT_GT(num_found, 100);
}

TEST(ForEachRunPair, AscendsInTheSource) {
  int64_t end = 0;
  ForEachRunPair({{0, 0}, {4, 5}}, {{1, 0}, {2, 9}}, {{1, 1}, {2, 3}},
                 [&](int64_t src, int64_t, int64_t count) {
                   EXPECT_GE(src, end);
                   end = src + count;
                 });
  EXPECT_EQ(end, 14);
}

}  // namespace
}  // namespace shardshift::ckpt
