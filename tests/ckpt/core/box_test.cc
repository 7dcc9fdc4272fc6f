// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/box.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BoxIntersect, IsEmptyWhenOnlyEdgesTouch) {
  EXPECT_EQ(Intersect({{0, 0}, {4, 4}}, {{4, 0}, {4, 4}}), std::nullopt);
  EXPECT_EQ(Intersect({{0, 0}, {4, 4}}, {{3, 2}, {4, 1}}),
            (Box{{3, 2}, {1, 1}}));
}

TEST(BoxIntersect, OfScalarsIsTheScalar) {
  EXPECT_EQ(Intersect({}, {}), Box{});
}

TEST(BoxIntersect, OfAnEmptyBoxIsEmpty) {
  EXPECT_EQ(Intersect({{2}, {0}}, {{0}, {4}}), std::nullopt);
}

TEST(BoxContains, WantsBothEndsInside) {
  const Box outer = {{2, 0}, {4, 3}};
  EXPECT_TRUE(Contains(outer, outer));
  EXPECT_TRUE(Contains(outer, {{6, 3}, {0, 0}}));
  EXPECT_FALSE(Contains(outer, {{1, 0}, {2, 1}}));
  EXPECT_FALSE(Contains(outer, {{5, 0}, {2, 1}}));
  EXPECT_FALSE(Contains(outer, {{2}, {1}}));
}

TEST(BoxContains, SurvivesNumbersThatOverflowWhenAdded) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_FALSE(Contains({{0}, {8}}, {{kMax}, {kMax}}));
}

TEST(CheckedNumElements, RefusesOverflowAlsoBesideAZero) {
  EXPECT_THAT(CheckedNumElements({int64_t{1} << 32, int64_t{1} << 31}),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("64 bits")));
  EXPECT_THAT(CheckedNumElements({0, int64_t{1} << 32, int64_t{1} << 31}),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("64 bits")));
  EXPECT_THAT(CheckedNumElements({3, -1}),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("negative")));
  EXPECT_EQ(CheckedNumElements({3, 0}).value(), 0);
  EXPECT_EQ(CheckedNumElements({}).value(), 1);
}

TEST(BoxToString, ShowsHalfOpenRanges) {
  EXPECT_EQ(ToString(Box{{0, 8}, {4, 8}}), "[0:4,8:16]");
  EXPECT_EQ(ToString(Box{}), "[]");
  EXPECT_EQ(ToString(Shape{4, 16}), "[4,16]");
}

// Row-major position of the first element of `piece` within `whole`.
int64_t Position(const Box& whole, const Box& piece) {
  int64_t position = 0;
  for (size_t d = 0; d < whole.start.size(); ++d) {
    position = position * whole.extent[d] + piece.start[d] - whole.start[d];
  }
  return position;
}

TEST(SplitRowMajor, GivesConsecutivePiecesWithinTheLimit) {
  for (const Box& whole : {Box{{1, 2, 3}, {3, 1, 7}}, Box{{0, 5}, {5, 4}},
                           Box{{9}, {11}}, Box{{}, {}}}) {
    for (int64_t limit = 1; limit <= 25; ++limit) {
      int64_t next = 0;
      for (const Box& piece : SplitRowMajor(whole, limit)) {
        EXPECT_TRUE(Contains(whole, piece));
        EXPECT_LE(NumElements(piece), limit);
        EXPECT_EQ(Position(whole, piece), next);
        next += NumElements(piece);
      }
      EXPECT_EQ(next, NumElements(whole));
    }
  }
  EXPECT_TRUE(SplitRowMajor({{0, 0}, {4, 0}}, 8).empty());
}

TEST(RowMajorRange, GivesFewBoxesThatAreTheRangeInOrder) {
  std::mt19937 random(11);
  const auto uniform = [&random](int64_t min, int64_t max) {
    return std::uniform_int_distribution<int64_t>(min, max)(random);
  };
  for (int round = 0; round < 3000; ++round) {
    Box whole;
    for (int64_t ndim = uniform(0, 5); ndim > 0; --ndim) {
      whole.start.push_back(uniform(0, 9));
      whole.extent.push_back(uniform(1, 5));
    }
    const int64_t begin = uniform(0, NumElements(whole));
    const int64_t end = uniform(begin, NumElements(whole));
    const std::vector<Box> boxes = RowMajorRange(whole, begin, end);
    EXPECT_LE(static_cast<int64_t>(boxes.size()),
              std::max<int64_t>(1, 2 * whole.ndim() - 1));
    int64_t next = begin;
    for (const Box& box : boxes) {
      ASSERT_TRUE(Contains(whole, box));
      // Contiguous, with the position of its first and its last element.
      Box last = box;
      for (size_t d = 0; d < box.start.size(); ++d) {
        last.start[d] += box.extent[d] - 1;
      }
      ASSERT_EQ(Position(whole, box), next);
      next += NumElements(box);
      ASSERT_EQ(Position(whole, last), next - 1);
    }
    ASSERT_EQ(next, end);
  }
}

TEST(ElementsBefore, CountsWhatARowMajorWalkHasPassed) {
  for (const Shape& shape : {Shape{}, Shape{7}, Shape{4, 5}, Shape{3, 1, 4, 2},
                             Shape{0, 3}, Shape{2, 0}}) {
    std::mt19937 random(3);
    for (int i = 0; i < 50; ++i) {
      Box box = WholeBox(shape);
      for (size_t d = 0; d < shape.size(); ++d) {
        const auto extent = static_cast<uint64_t>(shape[d]);
        box.start[d] = static_cast<int64_t>(random() % (extent + 1));
        const auto room = static_cast<uint64_t>(shape[d] - box.start[d]);
        box.extent[d] = static_cast<int64_t>(random() % (room + 1));
      }
      int64_t passed = 0;
      for (int64_t index = 0; index < NumElements(shape); ++index) {
        EXPECT_EQ(ElementsBefore(shape, box, index), passed);
        const Box here = RowMajorRange(WholeBox(shape), index, index + 1)[0];
        if (!Intersect(here, box)) continue;
        EXPECT_EQ(RowMajorIndex(shape, box, passed), index);
        ++passed;
      }
      EXPECT_EQ(ElementsBefore(shape, box, NumElements(shape)), passed);
    }
  }
}

TEST(RowMajorRange, CutsAMatrixIntoTailRowsAndHead) {
  EXPECT_THAT(RowMajorRange({{2, 0}, {5, 10}}, 7, 33),
              ElementsAre(Box{{2, 7}, {1, 3}}, Box{{3, 0}, {2, 10}},
                          Box{{5, 0}, {1, 3}}));
}

TEST(RowMajorRange, KeepsAWholeBoxWhole) {
  const Box box = {{1, 2, 3}, {4, 5, 6}};
  EXPECT_THAT(RowMajorRange(box, 0, 120), ElementsAre(box));
  EXPECT_THAT(RowMajorRange({}, 0, 1), ElementsAre(Box{}));
}

}  // namespace
}  // namespace shardshift::ckpt
