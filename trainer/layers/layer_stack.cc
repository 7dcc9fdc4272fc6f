// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/layer_stack.h"

#include <algorithm>
#include <utility>

#include "ckpt/core/status_macros.h"

namespace shardshift::trainer {

std::vector<LayerGroup> GroupLayers(int64_t num_layers,
                                    const ActivationOptions& options) {
  const Recompute& recompute = options.recompute;
  const bool is_full = recompute.granularity == RecomputeGranularity::kFull;
  const bool is_uniform =
      is_full && recompute.method == RecomputeMethod::kUniform;
  const int64_t size = is_uniform ? recompute.num_layers : 1;
  std::vector<LayerGroup> groups;
  for (int64_t begin = 0; begin < num_layers; begin += size) {
    groups.push_back(
        {.begin = begin,
         .end = std::min(begin + size, num_layers),
         .is_recomputed =
             is_full && (is_uniform || begin < recompute.num_layers)});
  }
  return groups;
}

LayerStack::LayerStack(LayerContext& context, const reshard::LayerRange& layers,
                       const RopeTable& rope)
    : groups_(GroupLayers(layers.end - layers.begin, context.activations)) {
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    layers_.emplace_back(context, layer, rope);
  }
}

absl::Status LayerStack::RunLayer(int64_t layer, const MicroBatch& batch,
                                  Buffer& x, TransformerLayer::Cache& cache) {
  Buffer y;
  SS_RETURN_IF_ERROR(layers_[layer].Forward(std::move(x), batch, y, cache));
  x = std::move(y);
  return absl::OkStatus();
}

absl::Status LayerStack::Forward(const MicroBatch& batch, Buffer& x,
                                 Cache& cache) {
  cache.resize(layers_.size());
  for (const LayerGroup& group : groups_) {
    for (int64_t layer = group.begin; layer < group.end; ++layer) {
      if (!group.is_recomputed) {
        SS_RETURN_IF_ERROR(RunLayer(layer, batch, x, cache[layer]));
        continue;
      }
      TransformerLayer::Cache dropped;
      SS_RETURN_IF_ERROR(RunLayer(layer, batch, x, dropped));
      if (layer == group.begin) cache[layer].x = std::move(dropped.x);
    }
  }
  return absl::OkStatus();
}

absl::Status LayerStack::Recompute(const LayerGroup& group,
                                   const MicroBatch& batch, Cache& cache) {
  Buffer x = std::move(cache[group.begin].x);
  for (int64_t layer = group.begin; layer < group.end; ++layer) {
    SS_RETURN_IF_ERROR(RunLayer(layer, batch, x, cache[layer]));
  }
  return absl::OkStatus();
}

absl::Status LayerStack::Backward(const MicroBatch& batch, Buffer& dy,
                                  Cache& cache) {
  for (auto group = groups_.rbegin(); group != groups_.rend(); ++group) {
    if (group->is_recomputed) {
      SS_RETURN_IF_ERROR(Recompute(*group, batch, cache));
    }
    for (int64_t layer = group->end; layer-- > group->begin;) {
      SS_RETURN_IF_ERROR(layers_[layer].Backward(cache[layer], batch, dy));
      cache[layer] = {};
    }
  }
  return absl::OkStatus();
}

}  // namespace shardshift::trainer
