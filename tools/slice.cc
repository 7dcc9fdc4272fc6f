// SPDX-License-Identifier: Apache-2.0
#include "tools/slice.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "ckpt/core/status_macros.h"

namespace shardshift {
namespace {

absl::Status Unreadable(absl::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("slice \"", text,
                   "\": expected an index, begin:end or begin:end:step, with "
                   "a step that is not 0"));
}

absl::StatusOr<Stride> ParseIndex(absl::string_view text, int64_t extent) {
  int64_t index = 0;
  if (!absl::SimpleAtoi(text, &index)) return Unreadable(text);
  if (index < -extent || index >= extent) {
    return absl::OutOfRangeError(absl::StrCat(
        "slice \"", text, "\" is not within the dim's extent ", extent));
  }
  return Stride{index < 0 ? index + extent : index, 1, 1};
}

// One end of a range. Both ends of a negative step lie one lower: the range
// goes down from extent - 1 and stops before -1.
std::optional<int64_t> ParseEnd(absl::string_view text, int64_t extent,
                                bool is_down, int64_t otherwise) {
  if (text.empty()) return otherwise;
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) return std::nullopt;
  if (value < 0) value += extent;
  const int64_t lowest = is_down ? -1 : 0;
  return std::clamp(value, lowest, lowest + extent);
}

absl::StatusOr<Stride> ParseRange(absl::string_view text, int64_t extent) {
  std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  for (absl::string_view& part : parts) {
    part = absl::StripAsciiWhitespace(part);
  }
  if (parts.size() == 1) return ParseIndex(parts[0], extent);
  int64_t step = 1;
  const bool has_step = parts.size() == 3 && !parts[2].empty();
  if (parts.size() > 3 || (has_step && !absl::SimpleAtoi(parts[2], &step)) ||
      step == 0) {
    return Unreadable(text);
  }
  const bool is_down = step < 0;
  const auto begin =
      ParseEnd(parts[0], extent, is_down, is_down ? extent - 1 : 0);
  const auto end = ParseEnd(parts[1], extent, is_down, is_down ? -1 : extent);
  if (!begin || !end) return Unreadable(text);
  // No longer than the dim, and so without overflow below.
  step = std::clamp(step, -extent - 1, extent + 1);
  const int64_t distance = is_down ? *begin - *end : *end - *begin;
  if (distance <= 0) return Stride{};
  const int64_t count = (distance - 1) / std::abs(step) + 1;
  return Stride{*begin, count, count == 1 ? 1 : step};
}

void AppendPieces(const Slice& slice, const ckpt::Box& piece,
                  int64_t max_elements, std::vector<ckpt::Box>& pieces) {
  if (ckpt::NumElements(SpanOf(slice, piece)) <= max_elements) {
    pieces.push_back(piece);
    return;
  }
  size_t dim = 0;
  while (piece.extent[dim] == 1) ++dim;
  ckpt::Box first = piece;
  ckpt::Box second = piece;
  first.extent[dim] = piece.extent[dim] / 2;
  second.start[dim] += first.extent[dim];
  second.extent[dim] -= first.extent[dim];
  AppendPieces(slice, first, max_elements, pieces);
  AppendPieces(slice, second, max_elements, pieces);
}

}  // namespace

std::pair<std::string, std::string> SplitSlice(const std::string& text) {
  const size_t bracket = text.rfind('[');
  if (bracket == std::string::npos || !absl::EndsWith(text, "]")) {
    return {text, ""};
  }
  return {text.substr(0, bracket), text.substr(bracket)};
}

absl::StatusOr<Slice> ParseSlice(absl::string_view text,
                                 const ckpt::Shape& shape) {
  std::vector<absl::string_view> parts;
  if (text.size() > 2) {
    parts = absl::StrSplit(text.substr(1, text.size() - 2), ',');
  }
  if (parts.size() > shape.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("slice ", text, " has ", parts.size(),
                     " dims, the tensor has ", shape.size()));
  }
  Slice slice;
  for (size_t d = 0; d < shape.size(); ++d) {
    const absl::string_view part = d < parts.size() ? parts[d] : ":";
    SS_ASSIGN_OR_RETURN(const Stride stride, ParseRange(part, shape[d]));
    slice.dims.push_back(stride);
    if (absl::StrContains(part, ":")) slice.shape.push_back(stride.count);
  }
  return slice;
}

std::vector<ckpt::Box> SplitSlicePieces(const Slice& slice,
                                        int64_t max_elements) {
  ckpt::Shape counts;
  for (const Stride& stride : slice.dims) counts.push_back(stride.count);
  std::vector<ckpt::Box> pieces;
  if (ckpt::NumElements(counts) > 0) {
    AppendPieces(slice, ckpt::WholeBox(counts), max_elements, pieces);
  }
  return pieces;
}

ckpt::Box SpanOf(const Slice& slice, const ckpt::Box& piece) {
  ckpt::Box span = piece;
  for (size_t d = 0; d < slice.dims.size(); ++d) {
    const Stride& stride = slice.dims[d];
    const int64_t first = stride.begin + piece.start[d] * stride.step;
    const int64_t last = first + (piece.extent[d] - 1) * stride.step;
    span.start[d] = std::min(first, last);
    span.extent[d] = std::abs(last - first) + 1;
  }
  return span;
}

void CopyPiece(const Slice& slice, const ckpt::Box& piece, int64_t item_size,
               const std::byte* span, std::byte* dst) {
  const ckpt::Box box = SpanOf(slice, piece);
  const int64_t count = ckpt::NumElements(piece);
  if (std::all_of(slice.dims.begin(), slice.dims.end(),
                  [](const Stride& stride) { return stride.step == 1; })) {
    std::memcpy(dst, span, static_cast<size_t>(count * item_size));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    int64_t stride_elements = 1;
    int64_t position = 0;
    for (size_t d = slice.dims.size(); d-- > 0;) {
      const int64_t at = rest % piece.extent[d] * slice.dims[d].step;
      rest /= piece.extent[d];
      position += (slice.dims[d].step > 0 ? at : box.extent[d] - 1 + at) *
                  stride_elements;
      stride_elements *= box.extent[d];
    }
    std::memcpy(dst + i * item_size, span + position * item_size,
                static_cast<size_t>(item_size));
  }
}

}  // namespace shardshift
