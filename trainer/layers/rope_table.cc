// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/rope_table.h"

#include <vector>

#include "kernels/rope_table.h"

namespace shardshift::trainer {
namespace {

kernels::RopeFrequencyArgs FrequencyArgs(const reshard::ModelConfig& model) {
  kernels::RopeFrequencyArgs args{
      .base = model.rotary_base,
      .head_dim = model.kv_channels,
      .interpolation = model.rotary_seq_len_interpolation_factor};
  if (model.use_rope_scaling) {
    args.scaling = {.factor = model.rope_scaling_factor,
                    .low = model.rope_low_freq_factor,
                    .high = model.rope_high_freq_factor,
                    .original_max_positions = static_cast<double>(
                        model.rope_original_max_position_embeddings)};
  }
  return args;
}

}  // namespace

RopeTable MakeRopeTable(const reshard::ModelConfig& model, int64_t positions) {
  RopeTable table;
  if (model.position_embedding != reshard::PositionEmbedding::kRope) {
    return table;
  }
  const std::vector<double> frequencies =
      kernels::RopeFrequencies(FrequencyArgs(model));
  const int64_t size = positions * static_cast<int64_t>(frequencies.size());
  table.cos = Buffer(size);
  table.sin = Buffer(size);
  kernels::BuildRopeTable(frequencies, positions, table.cos.data(),
                          table.sin.data());
  return table;
}

}  // namespace shardshift::trainer
