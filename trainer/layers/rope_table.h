// The rotation of a model's queries and keys.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_ROPE_TABLE_H_
#define SHARDSHIFT_TRAINER_LAYERS_ROPE_TABLE_H_

#include <cstdint>

#include "reshard/layout/model_config.h"
#include "trainer/buffer.h"

namespace shardshift::trainer {

// cos and sin of every position, [positions, head/2] each; empty without RoPE.
struct RopeTable {
  Buffer cos;
  Buffer sin;
};

RopeTable MakeRopeTable(const reshard::ModelConfig& model, int64_t positions);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_ROPE_TABLE_H_
