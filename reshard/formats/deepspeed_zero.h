// The optimizer's shards of ZeRO-1, 2 and 3, and of BF16_Optimizer.
// Source: distributed-optimizer.md 4.2, 4.3 and 4.5.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_ZERO_H_
#define SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_ZERO_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/formats/deepspeed_files.h"
#include "reshard/formats/deepspeed_model.h"
#include "reshard/formats/pickle_value.h"

namespace shardshift::reshard {

// The settings of torch's param_groups, each with the names of its parameters:
// `params` of a group numbers lists of `shapes`. `steps` has what was read of
// each list.
// Errors: DataLoss for a number that there is no list of.
absl::StatusOr<nlohmann::json> GroupsOf(
    const PickleValue& param_groups,
    const std::vector<std::vector<ShapedName>>& shapes,
    const std::vector<std::set<double>>& steps);

// Adds `master` and the states of all parameters, the weights that a module has
// of them, and what is trained by nobody: frozen parameters and buffers. Sets
// zero_stage, groups and the loss
// scale in the state. `model` is that of files.models[0].
// Errors: DataLoss naming the file that is missing or has another size than
// its parameters need; Unimplemented for other stages.
absl::Status AddZero(const DeepSpeedFiles& files, const DeepSpeedModel& model,
                     int64_t model_file, DeepSpeedContents& contents);

// Adds buffers, and frozen parameters from the pieces that all model files
// have. Errors: DataLoss as above.
absl::Status AddUntrainedSharded(const DeepSpeedFiles& files,
                                 const DeepSpeedModel& model,
                                 int64_t model_file,
                                 DeepSpeedContents& contents);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_ZERO_H_
