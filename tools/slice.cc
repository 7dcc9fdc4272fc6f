// SPDX-License-Identifier: Apache-2.0
#include "tools/slice.h"

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "ckpt/core/status_macros.h"

namespace shardshift {
namespace {

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  bool is_index = false;
};

// The number in `text`, `otherwise` if it is empty, nullopt if it is none.
std::optional<int64_t> Bound(absl::string_view text, int64_t otherwise) {
  if (text.empty()) return otherwise;
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

absl::StatusOr<Range> ParseRange(absl::string_view text, int64_t extent) {
  const std::vector<absl::string_view> ends = absl::StrSplit(text, ':');
  const bool is_index = ends.size() == 1;
  const std::optional<int64_t> begin = Bound(ends[0], 0);
  const std::optional<int64_t> end = Bound(ends.back(), extent);
  if (text.empty() || ends.size() > 2 || !begin || !end) {
    return absl::InvalidArgumentError(
        absl::StrCat("slice \"", text, "\": expected an index or begin:end"));
  }
  // Checked before begin + 1 is formed, which might overflow.
  const int64_t max_begin = is_index ? extent - 1 : extent;
  const bool is_inside = *begin >= 0 && *begin <= max_begin && *end <= extent &&
                         (is_index || *begin <= *end);
  if (!is_inside) {
    return absl::OutOfRangeError(absl::StrCat(
        "slice \"", text, "\" is not within the dim's extent ", extent));
  }
  return Range{*begin, is_index ? *begin + 1 : *end, is_index};
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
  Slice slice = {ckpt::WholeBox(shape), {}};
  std::vector<absl::string_view> parts;
  if (text.size() > 2) {
    parts = absl::StrSplit(text.substr(1, text.size() - 2), ',');
  }
  if (parts.size() > shape.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("slice ", text, " has ", parts.size(),
                     " dims, the tensor has ", shape.size()));
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    const absl::string_view part = d < parts.size() ? parts[d] : ":";
    SS_ASSIGN_OR_RETURN(const Range range, ParseRange(part, shape[d]));
    slice.box.start[d] = range.begin;
    slice.box.extent[d] = range.end - range.begin;
    if (!range.is_index) slice.shape.push_back(slice.box.extent[d]);
  }
  return slice;
}

}  // namespace shardshift
