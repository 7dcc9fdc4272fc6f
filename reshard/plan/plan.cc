// SPDX-License-Identifier: Apache-2.0
#include "reshard/plan/plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/plan/box_index.h"

namespace shardshift::reshard {
namespace {

using ckpt::Box;

absl::Status CheckDisjoint(std::span<const Box> sources,
                           const BoxIndex& index) {
  const auto pair = index.AnyOverlap();
  if (!pair) return absl::OkStatus();
  const Box& a = sources[pair->first];
  const Box& b = sources[pair->second];
  return absl::DataLossError(
      absl::StrCat("sources ", ckpt::ToString(a), " and ", ckpt::ToString(b),
                   " both hold ", ckpt::ToString(*ckpt::Intersect(a, b))));
}

int64_t MissingIn(const Box& region, const std::vector<Box>& held) {
  int64_t missing = ckpt::NumElements(region);
  for (const Box& box : held) missing -= ckpt::NumElements(box);
  return missing;
}

// The parts of `boxes` inside `region`.
std::vector<Box> Clip(const std::vector<Box>& boxes, const Box& region) {
  std::vector<Box> clipped;
  for (const Box& box : boxes) {
    if (const std::optional<Box> common = ckpt::Intersect(box, region)) {
      clipped.push_back(*common);
    }
  }
  return clipped;
}

// The two sides of the median of the borders of `boxes` that lie inside
// `region`, in the first dim that has one. REQUIRES: some box is not `region`.
std::pair<Box, Box> CutAtABorder(const Box& region,
                                 const std::vector<Box>& boxes) {
  std::vector<int64_t> borders;
  size_t dim = 0;
  for (;; ++dim) {
    const int64_t begin = region.start[dim];
    const int64_t end = begin + region.extent[dim];
    for (const Box& box : boxes) {
      const int64_t box_end = box.start[dim] + box.extent[dim];
      if (box.start[dim] > begin) borders.push_back(box.start[dim]);
      if (box_end < end) borders.push_back(box_end);
    }
    if (!borders.empty()) break;
  }
  const auto median = borders.begin() + std::ssize(borders) / 2;
  std::nth_element(borders.begin(), median, borders.end());
  Box low = region;
  low.extent[dim] = *median - region.start[dim];
  Box high = region;
  high.start[dim] = *median;
  high.extent[dim] -= low.extent[dim];
  return {low, high};
}

// `hole`, which `held` do not touch, as far as it goes on in `region` along one
// dim after the other.
Box Grow(Box hole, const Box& region, const std::vector<Box>& held) {
  for (size_t d = 0; d < hole.start.size(); ++d) {
    const int64_t hole_end = hole.start[d] + hole.extent[d];
    int64_t begin = region.start[d];
    int64_t end = begin + region.extent[d];
    Box line = hole;
    line.start[d] = begin;
    line.extent[d] = region.extent[d];
    for (const Box& box : held) {
      if (!ckpt::Intersect(box, line)) continue;
      const int64_t box_end = box.start[d] + box.extent[d];
      if (box_end <= hole.start[d]) begin = std::max(begin, box_end);
      if (box.start[d] >= hole_end) end = std::min(end, box.start[d]);
    }
    hole.start[d] = begin;
    hole.extent[d] = end - begin;
  }
  return hole;
}

// A box of `region` that `held`, disjoint boxes inside, do not touch.
// REQUIRES: they do not fill it.
Box HoleIn(const Box& region, const std::vector<Box>& held) {
  Box hole = region;
  std::vector<Box> inside = held;
  while (!inside.empty()) {
    const auto [low, high] = CutAtABorder(hole, inside);
    std::vector<Box> in_low = Clip(inside, low);
    const bool take_low = MissingIn(low, in_low) > 0;
    inside = take_low ? std::move(in_low) : Clip(inside, high);
    hole = take_low ? low : high;
  }
  return Grow(std::move(hole), region, held);
}

absl::Status CheckFilled(const Box& target, std::span<const BoxCopy> copies) {
  int64_t missing = ckpt::NumElements(target);
  for (const BoxCopy& copy : copies) missing -= ckpt::NumElements(copy.box);
  if (missing == 0) return absl::OkStatus();
  std::vector<Box> held;
  held.reserve(copies.size());
  for (const BoxCopy& copy : copies) held.push_back(copy.box);
  return absl::DataLossError(absl::StrCat(
      missing, " of the ", ckpt::NumElements(target), " elements of ",
      ckpt::ToString(target), " have no source, as ",
      ckpt::ToString(HoleIn(target, held))));
}

}  // namespace

absl::StatusOr<std::vector<BoxCopy>> PlanCopies(std::span<const Box> sources,
                                                std::span<const Box> targets) {
  const BoxIndex index(sources);
  SS_RETURN_IF_ERROR(CheckDisjoint(sources, index));
  // Of all targets, one after another: the copies are large, and room for them
  // is taken once.
  std::vector<int64_t> found;
  std::vector<size_t> ends;
  for (const Box& target : targets) {
    const auto first = std::ssize(found);
    index.AppendOverlaps(target, found);
    std::sort(found.begin() + first, found.end());
    ends.push_back(found.size());
  }
  std::vector<BoxCopy> copies;
  copies.reserve(found.size());
  for (size_t t = 0; t < targets.size(); ++t) {
    const size_t first = copies.size();
    while (copies.size() < ends[t]) {
      const int64_t s = found[copies.size()];
      copies.push_back({.source = s,
                        .target = static_cast<int64_t>(t),
                        .box = *ckpt::Intersect(sources[s], targets[t])});
    }
    SS_RETURN_IF_ERROR(
        CheckFilled(targets[t], std::span(copies).subspan(first)));
  }
  return copies;
}

}  // namespace shardshift::reshard
