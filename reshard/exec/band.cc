// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/band.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ckpt/core/box_copy.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {
namespace {

// From the first to the last element of `box`, which has one.
Range HullOf(const ckpt::Shape& shape, const ckpt::Box& box) {
  return {ckpt::RowMajorIndex(shape, box, 0),
          ckpt::RowMajorIndex(shape, box, ckpt::NumElements(box) - 1) + 1};
}

// The elements of `box` that lie in `band`, as a range of the box.
Range RangeOf(const ckpt::Shape& shape, const ckpt::Box& box,
              const Range& band) {
  return {ckpt::ElementsBefore(shape, box, band.begin),
          ckpt::ElementsBefore(shape, box, band.end)};
}

ckpt::Box AsBox(const Range& range) { return {{range.begin}, {range.size()}}; }

BoxIndex IndexOf(const std::vector<Range>& hulls) {
  std::vector<ckpt::Box> boxes;
  boxes.reserve(hulls.size());
  for (const Range& hull : hulls) boxes.push_back(AsBox(hull));
  return BoxIndex(boxes);
}

// Those that reach into `range`, ascending.
std::vector<int64_t> Reaching(const BoxIndex& hulls, const Range& range) {
  std::vector<int64_t> found;
  hulls.AppendOverlaps(AsBox(range), found);
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

absl::StatusOr<BandPlan> BandPlan::Create(ckpt::Shape shape,
                                          std::vector<ckpt::Box> sources,
                                          std::vector<ckpt::Box> targets) {
  BandPlan plan;
  SS_ASSIGN_OR_RETURN(plan.copies_, PlanCopies(sources, targets));
  plan.shape_ = std::move(shape);
  plan.sources_ = std::move(sources);
  plan.targets_ = std::move(targets);
  for (const BoxCopy& copy : plan.copies_) {
    plan.copy_hulls_.push_back(HullOf(plan.shape_, copy.box));
  }
  for (const ckpt::Box& box : plan.targets_) {
    plan.target_hulls_.push_back(
        ckpt::NumElements(box) == 0 ? Range{} : HullOf(plan.shape_, box));
  }
  plan.copies_by_hull_ = IndexOf(plan.copy_hulls_);
  plan.targets_by_hull_ = IndexOf(plan.target_hulls_);
  for (const Range& hull : plan.target_hulls_) {
    if (!hull.empty()) plan.hull_begins_.push_back(hull.begin);
  }
  std::sort(plan.hull_begins_.begin(), plan.hull_begins_.end());
  return plan;
}

int64_t BandPlan::NextWanted(int64_t begin) const {
  const auto later =
      std::lower_bound(hull_begins_.begin(), hull_begins_.end(), begin);
  int64_t next =
      later == hull_begins_.end() ? ckpt::NumElements(shape_) : *later;
  if (next == begin) return next;
  std::vector<int64_t> around;
  targets_by_hull_.AppendOverlaps(AsBox({begin, begin + 1}), around);
  for (const int64_t t : around) {
    const int64_t position = ckpt::ElementsBefore(shape_, targets_[t], begin);
    next = std::min(next, ckpt::RowMajorIndex(shape_, targets_[t], position));
  }
  return next;
}

Band BandPlan::BandFrom(int64_t begin, int64_t max_elements) const {
  Band band;
  band.elements = {
      begin, begin + std::min(max_elements, ckpt::NumElements(shape_) - begin)};
  if (band.elements.empty()) return band;
  std::map<int64_t, Range> of_source;
  for (const int64_t c : Reaching(copies_by_hull_, band.elements)) {
    const ckpt::Box& box = copies_[c].box;
    const Range in_copy = RangeOf(shape_, box, band.elements);
    if (in_copy.empty()) continue;
    band.copies.push_back(c);
    const ckpt::Box& source = sources_[copies_[c].source];
    const Range range =
        RangeOf(shape_, source,
                {ckpt::RowMajorIndex(shape_, box, in_copy.begin),
                 ckpt::RowMajorIndex(shape_, box, in_copy.end - 1) + 1});
    const auto [entry, is_new] = of_source.emplace(copies_[c].source, range);
    if (is_new) continue;
    entry->second = {std::min(entry->second.begin, range.begin),
                     std::max(entry->second.end, range.end)};
  }
  for (const auto& [source, range] : of_source) {
    band.sources.push_back({source, range});
  }
  for (const int64_t t : Reaching(targets_by_hull_, band.elements)) {
    const Range range = RangeOf(shape_, targets_[t], band.elements);
    if (!range.empty()) band.targets.push_back({t, range});
  }
  return band;
}

void BandPlan::Gather(const Band& band, int64_t target, Range range,
                      int64_t item_size,
                      absl::FunctionRef<void(const Run&)> visit) const {
  const ckpt::Box& to = targets_[target];
  const Range wanted = {ckpt::RowMajorIndex(shape_, to, range.begin),
                        ckpt::RowMajorIndex(shape_, to, range.end - 1) + 1};
  auto at = std::lower_bound(
      band.copies.begin(), band.copies.end(), target,
      [this](int64_t c, int64_t t) { return copies_[c].target < t; });
  for (; at != band.copies.end() && copies_[*at].target == target; ++at) {
    const BoxCopy& copy = copies_[*at];
    if (Intersect(copy_hulls_[*at], wanted).empty()) continue;
    const Range in_copy = RangeOf(shape_, copy.box, wanted);
    if (in_copy.empty()) continue;
    const FragmentRange& source = *std::lower_bound(
        band.sources.begin(), band.sources.end(), copy.source,
        [](const FragmentRange& a, int64_t b) { return a.fragment < b; });
    const ckpt::Box& from = sources_[copy.source];
    for (const ckpt::Box& box :
         ckpt::RowMajorRange(copy.box, in_copy.begin, in_copy.end)) {
      ckpt::ForEachRunPair(
          from, to, box,
          [&](int64_t src_offset, int64_t dst_offset, int64_t count) {
            visit(
                {source.data + (src_offset - source.elements.begin) * item_size,
                 dst_offset - range.begin, copy.source, src_offset, count});
          });
    }
  }
}

int64_t BandPlan::MaxOpenTargets() const {
  std::vector<std::pair<int64_t, int64_t>> events;  // where, how many more
  for (const Range& hull : target_hulls_) {
    if (hull.empty()) continue;
    events.emplace_back(hull.begin, 1);
    events.emplace_back(hull.end, -1);
  }
  std::sort(events.begin(), events.end());
  int64_t open = 0;
  int64_t most = 0;
  for (const auto& [where, change] : events) {
    open += change;
    most = std::max(most, open);
  }
  return most;
}

}  // namespace shardshift::reshard
