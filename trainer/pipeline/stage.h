// The layers of one pipeline stage, and running a batch through them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_PIPELINE_STAGE_H_
#define SHARDSHIFT_TRAINER_PIPELINE_STAGE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "trainer/layers/attention.h"
#include "trainer/layers/context.h"
#include "trainer/layers/embedding.h"
#include "trainer/layers/loss_head.h"
#include "trainer/layers/transformer_layer.h"

namespace shardshift::trainer {

// A rank's share of a global batch, cut into micro-batches.
struct Batch {
  int64_t num_samples = 0;
  int64_t micro_batch_size = 0;
  // [num_samples, S] each; empty on middle stages.
  std::vector<int32_t> tokens = {};
  std::vector<int32_t> labels = {};

  int64_t num_micro_batches() const { return num_samples / micro_batch_size; }
};

class Stage {
 public:
  // `context` outlives the stage. `tied_entry`: see LossHead.
  Stage(LayerContext& context, std::optional<int64_t> tied_entry);

  // Runs forward and backward of all micro-batches by 1F1B, with activations
  // and their gradients going to the neighbours. Gradients are left in the
  // context's buffer. sample_losses: [num_samples] on the last stage, else
  // untouched.
  absl::Status RunBatch(const Batch& batch, std::span<double> sample_losses);

 private:
  // What a micro-batch leaves behind between its forward and its backward.
  struct InFlight {
    MicroBatch batch;
    std::vector<TransformerLayer::Cache> layers;
    Buffer head_in;
    LossHead::Cache head;
  };

  MicroBatch Slice(const Batch& batch, int64_t micro_batch) const;
  absl::Status Forward(int64_t micro_batch, InFlight& state,
                       std::span<double> sample_losses);
  absl::Status Backward(int64_t micro_batch, InFlight& state);

  LayerContext& context_;
  RopeTable rope_;
  std::optional<Embedding> embedding_;
  std::vector<TransformerLayer> layers_;
  std::optional<LossHead> head_;
  std::map<int64_t, InFlight> in_flight_;  // by micro-batch
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_PIPELINE_STAGE_H_
