// The maps by which the tensors of DeepSpeed's tensor-parallel ranks are
// merged.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_SHARDS_H_
#define SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_SHARDS_H_

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/formats/deepspeed_model.h"
#include "reshard/formats/deepspeed_rules.h"
#include "reshard/formats/sharded_tensors.h"

namespace shardshift::reshard {

// Of all that the models of the ranks have, trained or not, but for aliases.
// Buffers are taken to be equal on all of them. `sharded` is as in
// DeepSpeedFiles. `left_out` gets padding.
// REQUIRES: a model for each rank; a rule, and others must agree with it.
// Errors: DataLoss naming the tensor and the files, for one that not all ranks
// have, and for rules that differ; as DeepSpeedRules::RuleOf.
absl::StatusOr<ShardMaps> MapsOf(std::span<const DeepSpeedModel> models,
                                 bool sharded,
                                 std::span<const DeepSpeedRules> rules,
                                 std::vector<std::string>& left_out);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_SHARDS_H_
