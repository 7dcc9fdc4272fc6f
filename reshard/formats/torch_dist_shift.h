// A fault of Megatron-Core 0.15 to 0.19: of an optimizer saved as
// fully_reshardable, state of later buckets is shifted by the padding of the
// buckets before, if there is any. The weights are right.
// Source: distributed-optimizer.md 2.3.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_SHIFT_H_
#define SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_SHIFT_H_

#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "ckpt/reader.h"
#include "reshard/formats/megatron_args.h"
#include "reshard/formats/megatron_module.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

// Adds the logical tensors of a chunk whose state would be shifted.
// `parameters` are those of one buffer, in the order of registration.
void AddTensorsAtRisk(const MegatronArgs& args, bool is_first_stage,
                      int64_t chunk, bool experts,
                      const std::vector<const ModuleParameter*>& parameters,
                      const std::vector<LogicalTensor>& tensors,
                      absl::btree_set<std::string>& at_risk);

// Compares some masters (of `state`) with the weights, of which they are to be
// the unrounded values. Errors: DataLoss naming the first tensor that differs.
absl::Status CheckNotShifted(const ckpt::Reader& state,
                             const ckpt::Reader& weights,
                             const absl::btree_set<std::string>& at_risk);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_SHIFT_H_
