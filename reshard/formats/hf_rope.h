// How a config.json says that positions are rotated.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_HF_ROPE_H_
#define SHARDSHIFT_RESHARD_FORMATS_HF_ROPE_H_

#include <nlohmann/json.hpp>

#include "reshard/formats/json_fields.h"
#include "reshard/layout/model_config.h"

namespace shardshift::reshard {

// Sets the rotary fields of `model` from `rope_parameters` (transformers 5), or
// from `rope_theta` and `rope_scaling`. Plain, linear and Llama 3's rotations
// are known. Any other, a key that the type does not have, or two keys that
// contradict each other, is refused in `fields`.
void ReadHfRope(JsonFields& fields, double default_theta, ModelConfig& model);

// Sets `rope_theta` and `rope_scaling`, which both versions understand.
void WriteHfRope(const ModelConfig& model, nlohmann::json& config);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_HF_ROPE_H_
