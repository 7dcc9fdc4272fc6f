// SPDX-License-Identifier: Apache-2.0
#include "tools/slice.h"

#include "tests/testutil/status_matchers.h"

namespace shardshift {
namespace {

using ::testing::HasSubstr;

TEST(SplitSlice, CutsTheBracketAtTheEndOnly) {
  EXPECT_EQ(SplitSlice("w[0:4,8]"),
            (std::pair<std::string, std::string>("w", "[0:4,8]")));
  EXPECT_EQ(SplitSlice("w").second, "");
  EXPECT_EQ(SplitSlice("w[0].x").first, "w[0].x");
}

TEST(ParseSlice, TakesRangesIndicesAndOpenEnds) {
  ASSERT_OK_AND_ASSIGN(const Slice slice,
                       ParseSlice("[2:4,5,:3]", {6, 7, 8, 9}));
  EXPECT_EQ(slice.box, (ckpt::Box{{2, 5, 0, 0}, {2, 1, 3, 9}}));
  EXPECT_EQ(slice.shape, (ckpt::Shape{2, 3, 9}));
}

TEST(ParseSlice, TakesNothingAsTheWhole) {
  for (const char* text : {"", "[]"}) {
    ASSERT_OK_AND_ASSIGN(const Slice slice, ParseSlice(text, {6, 7}));
    EXPECT_EQ(slice.box, ckpt::WholeBox({6, 7}));
  }
  ASSERT_OK_AND_ASSIGN(const Slice scalar, ParseSlice("", {}));
  EXPECT_EQ(ckpt::NumElements(scalar.box), 1);
}

TEST(ParseSlice, RefusesWhatItCannotRead) {
  for (const char* text : {"[x]", "[1:2:3]", "[,1]", "[1.5]", "[1,2,3]"}) {
    EXPECT_THAT(
        ParseSlice(text, {6, 7}),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("slice")))
        << text;
  }
}

TEST(ParseSlice, RefusesWhatIsBeyondTheTensor) {
  for (const char* text :
       {"[6]", "[-1]", "[0:7]", "[4:3]", "[:,8:]", "[9223372036854775807]"}) {
    EXPECT_THAT(ParseSlice(text, {6, 7}),
                StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("extent")))
        << text;
  }
}

}  // namespace
}  // namespace shardshift
