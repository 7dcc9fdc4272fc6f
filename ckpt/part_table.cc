// SPDX-License-Identifier: Apache-2.0
#include "ckpt/part_table.h"

#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/format/table_builder.h"

namespace shardshift::ckpt {
namespace {

// Checked here, as the number of blocks follows from the box: a bad box
// must not size anything.
absl::StatusOr<Fragment> MakeFragment(const FragmentSpec& spec, Codec codec) {
  Fragment fragment = {.box = spec.box};
  const absl::StatusOr<int64_t> elements = CheckedNumElements(spec.shape);
  if (!elements.ok()) return elements.status();
  if (Contains(WholeBox(spec.shape), spec.box)) {
    const int64_t num_bytes = NumElements(spec.box) * ItemSize(spec.dtype);
    fragment.codec = CodecFor(num_bytes, codec);
    fragment.blocks.resize(NumBlocks(num_bytes));
  }
  return fragment;
}

}  // namespace

absl::StatusOr<PartTable> MakePartTable(int64_t part, const CheckpointId& id,
                                        const std::vector<FragmentSpec>& specs,
                                        Codec codec) {
  if (specs.empty() || part < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("part ", part, " of ", specs.size(),
                     " fragments: expected a number >= 0 and a fragment"));
  }
  TableBuilder builder;
  for (const FragmentSpec& spec : specs) {
    const Tensor tensor = {spec.tensor, spec.role, spec.dtype, spec.shape};
    absl::StatusOr<Fragment> fragment = MakeFragment(spec, codec);
    if (!fragment.ok()) return Annotate(fragment.status(), Describe(tensor));
    SS_RETURN_IF_ERROR(builder.Add(tensor, *std::move(fragment)));
  }
  PartTable made;
  std::tie(made.table, made.index) = builder.Build();
  made.table.step = id.step;
  made.table.state = id.state;
  SS_RETURN_IF_ERROR(CheckContents(made.table));
  return made;
}

}  // namespace shardshift::ckpt
