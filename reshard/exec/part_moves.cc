// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/part_moves.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/executors.h"
#include "reshard/plan/plan.h"

namespace shardshift::reshard {

absl::Status VisitMoves(const ckpt::Reader& source, const CopyPlan& plan,
                        absl::FunctionRef<void(const PartMove&)> visit) {
  for (const TensorCopy& copy : plan.tensors) {
    const ckpt::Tensor& tensor = source.table().tensors[copy.source];
    const std::span<const ckpt::Fragment> fragments =
        source.Fragments(copy.source);
    std::vector<ckpt::Box> sources;
    sources.reserve(fragments.size());
    for (const ckpt::Fragment& fragment : fragments) {
      sources.push_back(fragment.box);
    }
    std::vector<ckpt::Box> targets;
    targets.reserve(copy.targets.size());
    for (const TargetFragment& target : copy.targets) {
      targets.push_back(plan.parts[target.part].specs[target.spec].box);
    }
    const absl::StatusOr<std::vector<BoxCopy>> copies =
        PlanCopies(sources, targets);
    if (!copies.ok()) {
      return Annotate(copies.status(),
                      absl::StrCat(source.directory(), ": ", Describe(tensor)));
    }
    for (const BoxCopy& box : *copies) {
      const int64_t part = copy.targets[box.target].part;
      visit(
          {.source_part = fragments[box.source].part,
           .target_part = plan.parts[part].number,
           .bytes = ckpt::NumElements(box.box) * ckpt::ItemSize(tensor.dtype)});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ReadTotals> TotalsOfLoad(
    const ckpt::Reader& source, const std::vector<LogicalTensor>& tensors,
    std::span<const Piece> pieces) {
  const auto nowhere = [](const Piece&, int64_t) -> float* { return nullptr; };
  SS_ASSIGN_OR_RETURN(
      const std::vector<ckpt::FragmentRead> reads,
      PlanLoad(source, tensors, pieces, nowhere, RolesOf(ContentOf(source))));
  const ckpt::Table& table = source.table();
  ReadTotals totals;
  std::set<int64_t> fragments;
  std::set<int64_t> parts;
  for (const ckpt::FragmentRead& read : reads) {
    const ckpt::Fragment& fragment = table.fragments[read.fragment];
    fragments.insert(read.fragment);
    parts.insert(fragment.part);
    totals.bytes += ckpt::NumElements(read.what) *
                    ckpt::ItemSize(table.tensors[fragment.tensor].dtype);
  }
  totals.fragments = std::ssize(fragments);
  totals.parts.assign(parts.begin(), parts.end());
  return totals;
}

}  // namespace shardshift::reshard
