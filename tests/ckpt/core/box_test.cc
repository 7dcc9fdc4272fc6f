// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/box.h"

#include <limits>

#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

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

}  // namespace
}  // namespace shardshift::ckpt
