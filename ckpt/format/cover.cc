// SPDX-License-Identifier: Apache-2.0
#include "ckpt/format/cover.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::ckpt {
namespace {

struct Cut {
  size_t dim = 0;
  int64_t at = 0;
  int64_t num_straddling = 0;  // boxes it goes through
};

// A cut of `region` at the median border of the boxes in `dim`, if a border
// lies inside.
std::optional<Cut> MedianCut(const Box& region, const std::vector<Box>& boxes,
                             size_t dim) {
  std::vector<int64_t> borders;
  const int64_t region_end = region.start[dim] + region.extent[dim];
  for (const Box& box : boxes) {
    const int64_t end = box.start[dim] + box.extent[dim];
    if (box.start[dim] > region.start[dim]) borders.push_back(box.start[dim]);
    if (end < region_end) borders.push_back(end);
  }
  if (borders.empty()) return std::nullopt;
  const auto median = borders.begin() + std::ssize(borders) / 2;
  std::nth_element(borders.begin(), median, borders.end());
  Cut cut = {dim, *median, 0};
  for (const Box& box : boxes) {
    if (box.start[dim] < cut.at && cut.at < box.start[dim] + box.extent[dim]) {
      ++cut.num_straddling;
    }
  }
  return cut;
}

// REQUIRES: some box is not `region`.
Cut BestCut(const Box& region, const std::vector<Box>& boxes) {
  std::optional<Cut> best;
  for (size_t d = 0; d < region.start.size(); ++d) {
    const std::optional<Cut> cut = MedianCut(region, boxes, d);
    if (cut && (!best || cut->num_straddling < best->num_straddling)) {
      best = cut;
    }
  }
  return *best;
}

absl::Status Uncovered(const Box& region) {
  return absl::InvalidArgumentError(
      absl::StrCat("nothing holds all of ", ToString(region)));
}

absl::Status Overlap(const Box& region) {
  return absl::InvalidArgumentError(
      absl::StrCat("fragments overlap within ", ToString(region)));
}

// Volumes tell a gap or an overlap without looking at pairs. They are summed
// by subtraction, as the sum of many overlapping boxes might overflow.
absl::Status CheckVolume(const Box& region, const std::vector<Box>& boxes) {
  int64_t missing = NumElements(region);
  for (const Box& box : boxes) {
    const int64_t volume = NumElements(box);
    if (volume > missing) return Overlap(region);
    missing -= volume;
  }
  return missing > 0 ? Uncovered(region) : absl::OkStatus();
}

}  // namespace

absl::Status CheckExactCover(const Box& region, const std::vector<Box>& boxes) {
  absl::Status volume = CheckVolume(region, boxes);
  if (!volume.ok() || boxes.size() == 1) return volume;

  const Cut cut = BestCut(region, boxes);
  Box low = region;
  low.extent[cut.dim] = cut.at - region.start[cut.dim];
  Box high = region;
  high.start[cut.dim] = cut.at;
  high.extent[cut.dim] -= low.extent[cut.dim];
  for (const Box& half : {low, high}) {
    std::vector<Box> clipped;
    for (const Box& box : boxes) {
      if (std::optional<Box> common = Intersect(box, half)) {
        clipped.push_back(*std::move(common));
      }
    }
    SS_RETURN_IF_ERROR(CheckExactCover(half, clipped));
  }
  return absl::OkStatus();
}

}  // namespace shardshift::ckpt
