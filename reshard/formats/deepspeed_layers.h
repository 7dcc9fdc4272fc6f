// The files layer_* of a DeepSpeed pipeline, which have the module's weights.
// Source: distributed-optimizer.md 4.6.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_LAYERS_H_
#define SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_LAYERS_H_

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "reshard/formats/deepspeed_files.h"
#include "reshard/formats/deepspeed_model.h"
#include "reshard/formats/deepspeed_rules.h"

namespace shardshift::reshard {

// Adds what the module has: weights, frozen parameters and buffers.
// `models` are those of all ranks of `folder`, and `rules`, which are needed if
// there are several tensor-parallel ranks.
//
// A layer's names are local to it: `norm.weight` of layer 1 is 1.norm.weight,
// but tied_modules.KEY.norm.weight if it is a tied one, whose key no file
// tells. It is taken to be one if the optimizer has nothing under the layer's
// number, and one key of which the layer has all; a note says so. Layers of one
// key must be equal.
// Errors: DataLoss naming the file and the tensor that is missing or has
// another shape; Unimplemented where it cannot be told which key it is.
absl::Status AddLayers(const DeepSpeedFolder& folder,
                       const DeepSpeedDegrees& degrees,
                       const std::vector<DeepSpeedModel>& models,
                       std::span<const DeepSpeedRules> rules,
                       DeepSpeedContents& contents);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_LAYERS_H_
