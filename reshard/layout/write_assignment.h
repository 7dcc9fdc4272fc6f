// Which rank writes what into a checkpoint. One pure function that the
// trainer's save and `reshard` share, so that both give the same bytes.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_LAYOUT_WRITE_ASSIGNMENT_H_
#define SHARDSHIFT_RESHARD_LAYOUT_WRITE_ASSIGNMENT_H_

#include <cstdint>
#include <vector>

#include "ckpt/core/box.h"
#include "reshard/layout/content.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/model_config.h"

namespace shardshift::reshard {

// A box of a logical tensor (an index into LogicalTensors) under one role (as
// RoleAt numbers them).
struct WriteItem {
  int64_t tensor = 0;
  int64_t role = 0;
  ckpt::Box box;

  bool operator==(const WriteItem&) const = default;
};

// For each rank the items it writes, by tensor, role, box: the order of the
// fragments in its part file. A box that several ranks hold goes whole to the
// one with the fewest bytes so far, taken in order of falling size, then name,
// role and box; ties to the lowest rank. Boxes of one holder count first.
// Weights are held by every data-parallel rank, whatever the optimizer. The
// weight of a tensor with keeps_weight (empty: none) goes where its master
// goes, box by box, and changes nothing else. REQUIRES: Validate(model, layout)
// is OK; weights are kept beside masters.
std::vector<std::vector<WriteItem>> AssignWriters(
    const ModelConfig& model, const Layout& layout,
    Content content = Content::kTraining,
    const std::vector<bool>& keeps_weight = {});

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_LAYOUT_WRITE_ASSIGNMENT_H_
