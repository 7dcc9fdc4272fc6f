// Consecutive layers of the model, and what of them is kept between the forward
// and the backward pass of a micro-batch: all that they leave, or with full
// recomputation the input of each group of layers, which runs forward once more
// before it runs backward. What is dropped follows from indices, so the
// second run has the bits of the first. Source: parallel-layout.md 14.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_LAYER_STACK_H_
#define SHARDSHIFT_TRAINER_LAYERS_LAYER_STACK_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "reshard/layout/stages.h"
#include "trainer/activation_options.h"
#include "trainer/buffer.h"
#include "trainer/layers/attention.h"
#include "trainer/layers/context.h"
#include "trainer/layers/transformer_layer.h"

namespace shardshift::trainer {

// Layers [begin, end) of a stack.
struct LayerGroup {
  int64_t begin = 0;
  int64_t end = 0;
  bool is_recomputed = false;

  bool operator==(const LayerGroup&) const = default;
};

// How a stack of `num_layers` layers is cut: with full recomputation into the
// groups that Megatron makes of a stage, else into single layers.
std::vector<LayerGroup> GroupLayers(int64_t num_layers,
                                    const ActivationOptions& options);

class LayerStack {
 public:
  // By layer. Of a group that is recomputed the first layer has its input and
  // nothing else, the others are empty.
  using Cache = std::vector<TransformerLayer::Cache>;

  // `context` and `rope` outlive the stack.
  LayerStack(LayerContext& context, const reshard::LayerRange& layers,
             const RopeTable& rope);

  // x: [r, H], becomes the output.
  absl::Status Forward(const MicroBatch& batch, Buffer& x, Cache& cache);

  // dy: [r, H], becomes the gradient of the input. Uses up the cache.
  absl::Status Backward(const MicroBatch& batch, Buffer& dy, Cache& cache);

 private:
  // Runs one layer and leaves what it left in `cache`.
  absl::Status RunLayer(int64_t layer, const MicroBatch& batch, Buffer& x,
                        TransformerLayer::Cache& cache);
  absl::Status Recompute(const LayerGroup& group, const MicroBatch& batch,
                         Cache& cache);

  std::vector<TransformerLayer> layers_;
  std::vector<LayerGroup> groups_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_LAYER_STACK_H_
