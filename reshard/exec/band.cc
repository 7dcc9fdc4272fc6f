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
  plan.first_copy_.resize(plan.targets_.size() + 1, std::ssize(plan.copies_));
  for (size_t c = plan.copies_.size(); c-- > 0;) {
    plan.first_copy_[plan.copies_[c].target] = static_cast<int64_t>(c);
  }
  for (size_t t = plan.targets_.size(); t-- > 0;) {
    plan.first_copy_[t] =
        std::min(plan.first_copy_[t], plan.first_copy_[t + 1]);
  }
  return plan;
}

int64_t BandPlan::NextWanted(int64_t begin) const {
  int64_t next = ckpt::NumElements(shape_);
  for (size_t t = 0; t < targets_.size(); ++t) {
    const Range& hull = target_hulls_[t];
    if (hull.end <= begin || hull.begin >= next) continue;
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
  for (size_t c = 0; c < copies_.size(); ++c) {
    if (Intersect(copy_hulls_[c], band.elements).empty()) continue;
    const ckpt::Box& box = copies_[c].box;
    const Range in_copy = RangeOf(shape_, box, band.elements);
    if (in_copy.empty()) continue;
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
  for (size_t t = 0; t < targets_.size(); ++t) {
    if (Intersect(target_hulls_[t], band.elements).empty()) continue;
    const Range range = RangeOf(shape_, targets_[t], band.elements);
    if (!range.empty()) {
      band.targets.push_back({static_cast<int64_t>(t), range});
    }
  }
  return band;
}

void BandPlan::Gather(const Band& band, int64_t target, Range range,
                      int64_t item_size,
                      absl::FunctionRef<void(const Run&)> visit) const {
  const ckpt::Box& to = targets_[target];
  const Range wanted = {ckpt::RowMajorIndex(shape_, to, range.begin),
                        ckpt::RowMajorIndex(shape_, to, range.end - 1) + 1};
  for (int64_t c = first_copy_[target]; c < first_copy_[target + 1]; ++c) {
    if (Intersect(copy_hulls_[c], wanted).empty()) continue;
    const BoxCopy& copy = copies_[c];
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
