// SPDX-License-Identifier: Apache-2.0
#include "tools/slice.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "ckpt/core/box_copy.h"
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
                       ParseSlice("[2:4, 5,:3]", {6, 7, 8, 9}));
  EXPECT_EQ(slice.dims, (std::vector<Stride>{{2, 2}, {5, 1}, {0, 3}, {0, 9}}));
  EXPECT_EQ(slice.shape, (ckpt::Shape{2, 3, 9}));
}

TEST(ParseSlice, CountsNegativeNumbersFromTheEnd) {
  ASSERT_OK_AND_ASSIGN(const Slice slice, ParseSlice("[-1,-3:-1]", {6, 7}));
  EXPECT_EQ(slice.dims, (std::vector<Stride>{{5, 1}, {4, 2}}));
}

TEST(ParseSlice, TakesNothingAsTheWhole) {
  for (const char* text : {"", "[]"}) {
    ASSERT_OK_AND_ASSIGN(const Slice slice, ParseSlice(text, {6, 7}));
    EXPECT_EQ(slice.shape, (ckpt::Shape{6, 7}));
  }
  ASSERT_OK_AND_ASSIGN(const Slice scalar, ParseSlice("", {}));
  EXPECT_EQ(SplitSlicePieces(scalar, 1).size(), 1);
}

TEST(ParseSlice, RefusesWhatItCannotRead) {
  for (const char* text :
       {"[x]", "[1:2:0]", "[1:2:3:4]", "[1:x]", "[,1]", "[1.5]", "[1,2,3]"}) {
    EXPECT_THAT(
        ParseSlice(text, {6, 7}),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("slice")))
        << text;
  }
}

TEST(ParseSlice, RefusesAnIndexBeyondTheTensor) {
  for (const char* text : {"[6]", "[-7]", "[:,7]", "[9223372036854775807]",
                           "[-9223372036854775808]"}) {
    EXPECT_THAT(ParseSlice(text, {6, 7}),
                StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("extent")))
        << text;
  }
  EXPECT_THAT(ParseSlice("[0]", {0}),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("extent 0")));
}

// Python's rule, in its own words: the indices begin, begin + step, ... on the
// near side of end, each bound cut to the dim first.
std::vector<int64_t> PythonRange(std::optional<int64_t> begin,
                                 std::optional<int64_t> end, int64_t step,
                                 int64_t extent) {
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? extent : extent - 1;
  const auto cut = [&](int64_t bound) {
    return std::clamp(bound < 0 ? bound + extent : bound, low, high);
  };
  std::vector<int64_t> indices;
  const int64_t stop = end ? cut(*end) : step > 0 ? high : low;
  for (int64_t i = begin      ? cut(*begin)
                   : step > 0 ? low
                              : high;
       step > 0 ? i < stop : i > stop; i += step) {
    indices.push_back(i);
  }
  return indices;
}

std::string Text(std::optional<int64_t> bound) {
  return bound ? absl::StrCat(*bound) : "";
}

// All ranges of -7 to 7 and open ends in a dim.
void ExpectPythonRanges(int64_t step, int64_t extent) {
  std::vector<std::optional<int64_t>> bounds = {std::nullopt};
  for (int64_t bound = -7; bound <= 7; ++bound) bounds.push_back(bound);
  for (const auto begin : bounds) {
    for (const auto end : bounds) {
      const std::string text =
          absl::StrCat("[", Text(begin), ":", Text(end), ":", step, "]");
      ASSERT_OK_AND_ASSIGN(const Slice slice, ParseSlice(text, {extent}));
      std::vector<int64_t> indices;
      for (int64_t i = 0; i < slice.dims[0].count; ++i) {
        indices.push_back(slice.dims[0].begin + i * slice.dims[0].step);
      }
      EXPECT_EQ(indices, PythonRange(begin, end, step, extent))
          << text << " of " << extent;
    }
  }
}

TEST(ParseSlice, GivesTheIndicesThatPythonGives) {
  constexpr int64_t kFar = int64_t{1} << 62;
  for (const int64_t extent : {0, 1, 5}) {
    for (const int64_t step : {-kFar, -3L, -2L, -1L, 1L, 2L, 3L, kFar}) {
      ExpectPythonRanges(step, extent);
    }
  }
}

// The elements of a slice of a tensor whose element i is i.
std::vector<int32_t> Elements(const Slice& slice, const ckpt::Shape& shape,
                              int64_t max_elements) {
  std::vector<int32_t> found;
  for (const ckpt::Box& piece : SplitSlicePieces(slice, max_elements)) {
    const ckpt::Box span = SpanOf(slice, piece);
    EXPECT_LE(ckpt::NumElements(span), max_elements);
    std::vector<int32_t> image;
    ckpt::ForEachRun(ckpt::WholeBox(shape), span,
                     [&](int64_t offset, int64_t count) {
                       for (int64_t i = offset; i < offset + count; ++i) {
                         image.push_back(static_cast<int32_t>(i));
                       }
                     });
    const size_t begin = found.size();
    found.resize(begin + ckpt::NumElements(piece));
    CopyPiece(slice, piece, 4, reinterpret_cast<const std::byte*>(image.data()),
              reinterpret_cast<std::byte*>(&found[begin]));
  }
  return found;
}

TEST(SplitSlicePieces, GiveTheElementsInOrderWhateverTheirSize) {
  const ckpt::Shape shape = {5, 3, 8};
  ASSERT_OK_AND_ASSIGN(const Slice slice,
                       ParseSlice("[::-2,1:,6:1:-3]", shape));
  std::vector<int32_t> want;
  for (const int32_t i : {4, 2, 0}) {
    for (const int32_t j : {1, 2}) {
      for (const int32_t k : {6, 3}) want.push_back((i * 3 + j) * 8 + k);
    }
  }
  for (const int64_t max_elements : {1, 2, 7, 30, 1000}) {
    EXPECT_EQ(Elements(slice, shape, max_elements), want) << max_elements;
  }
}

}  // namespace
}  // namespace shardshift
