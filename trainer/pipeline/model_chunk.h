// A run of consecutive layers of the model on one stage, the first one with the
// embedding before them, the last one with the head behind them. A stage has
// one, or several if it is interleaved.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_PIPELINE_MODEL_CHUNK_H_
#define SHARDSHIFT_TRAINER_PIPELINE_MODEL_CHUNK_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "reshard/layout/stages.h"
#include "trainer/buffer.h"
#include "trainer/layers/attention.h"
#include "trainer/layers/context.h"
#include "trainer/layers/embedding.h"
#include "trainer/layers/layer_stack.h"
#include "trainer/layers/loss_head.h"

namespace shardshift::trainer {

class ModelChunk {
 public:
  struct Role {
    reshard::LayerRange layers;  // none is allowed
    bool has_embedding = false;
    bool has_head = false;
  };

  // What a micro-batch leaves behind between its forward and its backward.
  struct Cache {
    MicroBatch batch;
    LayerStack::Cache layers;
    Buffer head_in;
    LossHead::Cache head;
  };

  // `context` and `rope` outlive the chunk. `tied_entry`: see LossHead.
  ModelChunk(LayerContext& context, const Role& role, const RopeTable& rope,
             std::optional<int64_t> tied_entry);

  bool has_embedding() const { return embedding_.has_value(); }
  bool has_head() const { return head_.has_value(); }

  // Of cache.batch. x [r, H] becomes the output of the layers in place; with
  // the embedding it is written first.
  absl::Status ForwardLayers(Buffer& x, Cache& cache);

  // The same, and with the head x is used up and sample_losses, [b], are set.
  absl::Status Forward(Buffer& x, Cache& cache,
                       std::span<double> sample_losses);

  // dx [r, H], of the output, becomes that of the input in place; with the head
  // it is written first.
  absl::Status Backward(Buffer& dx, Cache& cache);

 private:
  std::optional<Embedding> embedding_;
  LayerStack layers_;
  std::optional<LossHead> head_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_PIPELINE_MODEL_CHUNK_H_
