// What every layer of a rank works with.
// Shapes in layers/: R = rows of a micro-batch, b samples of S positions each,
// sample-major; r = those of them that the rank has between blocks, all or its
// positions of each sample (sequence_shards.h); H hidden; all activations are
// row-major floats, of the precision of the run.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_CONTEXT_H_
#define SHARDSHIFT_TRAINER_LAYERS_CONTEXT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "reshard/layout/model_config.h"
#include "trainer/activation_options.h"
#include "trainer/layers/sequence_shards.h"
#include "trainer/mesh.h"
#include "trainer/moe_loss.h"
#include "trainer/optim/gradient_buffer.h"
#include "trainer/optim/gradients.h"
#include "trainer/parameters.h"
#include "trainer/precision.h"

namespace shardshift::trainer {

// The shares of elements that are dropped, and the seed that says which.
struct DropoutContext {
  uint64_t seed = 0;
  double attention = 0;
  double hidden = 0;
};

// The tokens of the whole batch by expert, all layers together. Before the
// backward passes, where the loss of the routers asks for it.
struct BatchLoad {
  bool is_counting = false;     // whether forward passes add to `tokens`
  std::vector<int64_t> tokens;  // empty where it is not asked for
};

struct LayerContext {
  const kernels::Kernels& kernels;
  const reshard::ModelConfig& model;
  Mesh& mesh;
  Parameters& parameters;
  Gradients& all_gradients;
  GradientBuffer& gradients;  // of them, all but those of experts kept apart
  const SequenceShards& shards;
  ActivationOptions activations;
  DropoutContext dropout;
  MoeLoss moe_loss;
  BatchLoad batch_load;
  // What the gradient of the loss of each token begins with; a power of two.
  float token_gradient = 1.0F;
  int64_t seq_length;          // S
  int64_t batch_tokens;        // of the global batch
  int64_t tensor_granularity;  // Gt: leaves of every sum TP can split

  // The leaves that one tensor-parallel rank evaluates.
  int64_t leaves_per_rank() const {
    return tensor_granularity / mesh.layout().tensor;
  }

  // To the precision of the run.
  void Round(float* x, int64_t count) const {
    RoundTo(activations.precision, kernels, x, count);
  }
};

// Some consecutive samples of a rank's share of the batch.
struct MicroBatch {
  int64_t first_sample = 0;   // counts from the rank's first of the batch
  int64_t number_in_run = 0;  // of the first sample, counted over the whole run
  int64_t num_samples = 0;    // b
  // [b, S] each; on the first and the last stage.
  std::span<const int32_t> tokens = {};
  std::span<const int32_t> labels = {};
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_CONTEXT_H_
