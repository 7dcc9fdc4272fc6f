// SPDX-License-Identifier: Apache-2.0
#include "reshard/plan/plan.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {
namespace {

using ckpt::Box;

// Boxes sorted along one dim, so that those near a given box are found by
// binary search.
class BoxIndex {
 public:
  explicit BoxIndex(std::span<const Box> boxes)
      : boxes_(boxes), dim_(FinestDim(boxes)), order_(boxes.size()) {
    for (size_t i = 0; i < order_.size(); ++i) {
      order_[i] = static_cast<int64_t>(i);
      max_extent_ = std::max(max_extent_, Extent(boxes[i]));
    }
    std::stable_sort(order_.begin(), order_.end(), [this](auto a, auto b) {
      return Start(boxes_[a]) < Start(boxes_[b]);
    });
  }

  // Calls visit(i, overlap) for each box i that overlaps `box`, ascending.
  template <typename Visitor>
  void ForEachOverlap(const Box& box, Visitor&& visit) const {
    const auto begin =
        std::partition_point(order_.begin(), order_.end(), [&](int64_t i) {
          return Start(boxes_[i]) + max_extent_ <= Start(box);
        });
    for (auto it = begin; it != order_.end(); ++it) {
      if (Start(boxes_[*it]) >= Start(box) + Extent(box)) break;
      const std::optional<Box> overlap = ckpt::Intersect(boxes_[*it], box);
      if (overlap.has_value()) visit(*it, *overlap);
    }
  }

 private:
  // The dim in which the boxes start at the most places.
  static size_t FinestDim(std::span<const Box> boxes) {
    size_t finest = 0;
    size_t most = 0;
    const size_t ndim = boxes.empty() ? 0 : boxes[0].start.size();
    for (size_t dim = 0; dim < ndim; ++dim) {
      std::set<int64_t> starts;
      for (const Box& box : boxes) starts.insert(box.start[dim]);
      if (starts.size() > most) {
        most = starts.size();
        finest = dim;
      }
    }
    return finest;
  }

  int64_t Start(const Box& box) const {
    return box.start.empty() ? 0 : box.start[dim_];
  }
  int64_t Extent(const Box& box) const {
    return box.extent.empty() ? 1 : box.extent[dim_];
  }

  std::span<const Box> boxes_;
  size_t dim_;
  std::vector<int64_t> order_;
  int64_t max_extent_ = 0;
};

absl::Status CheckDisjoint(std::span<const Box> sources,
                           const BoxIndex& index) {
  absl::Status status;
  for (size_t i = 0; i < sources.size() && status.ok(); ++i) {
    index.ForEachOverlap(sources[i], [&](int64_t j, const Box& overlap) {
      if (j == static_cast<int64_t>(i)) return;
      status.Update(absl::DataLossError(absl::StrCat(
          "sources ", ckpt::ToString(sources[i]), " and ",
          ckpt::ToString(sources[j]), " both hold ", ckpt::ToString(overlap))));
    });
  }
  return status;
}

}  // namespace

absl::StatusOr<std::vector<BoxCopy>> PlanCopies(std::span<const Box> sources,
                                                std::span<const Box> targets) {
  const BoxIndex index(sources);
  SS_RETURN_IF_ERROR(CheckDisjoint(sources, index));
  std::vector<BoxCopy> copies;
  for (size_t t = 0; t < targets.size(); ++t) {
    int64_t covered = 0;
    index.ForEachOverlap(targets[t], [&](int64_t s, const Box& overlap) {
      covered += ckpt::NumElements(overlap);
      copies.push_back(
          {.source = s, .target = static_cast<int64_t>(t), .box = overlap});
    });
    if (covered != ckpt::NumElements(targets[t])) {
      return absl::DataLossError(absl::StrCat(
          "only ", covered, " of the ", ckpt::NumElements(targets[t]),
          " elements of ", ckpt::ToString(targets[t]), " have a source"));
    }
  }
  return copies;
}

}  // namespace shardshift::reshard
