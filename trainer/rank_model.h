// One rank's model, gradients and optimizer, put together for a layout.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_RANK_MODEL_H_
#define SHARDSHIFT_TRAINER_RANK_MODEL_H_

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/kernels.h"
#include "trainer/activation_options.h"
#include "trainer/layers/context.h"
#include "trainer/layers/sequence_shards.h"
#include "trainer/memory_formula.h"
#include "trainer/mesh.h"
#include "trainer/optim/gradients.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parameters.h"
#include "trainer/pipeline/stage.h"
#include "trainer/run_config.h"

namespace shardshift::trainer {

struct StepResult {
  float loss = 0;           // mean over the tokens of the global batch
  float grad_norm = 0;      // before clipping; NaN if a gradient is not finite
  bool is_updated = false;  // not where the norm is NaN: weights are as before
};

class RankModel {
 public:
  // Weights are 0 until parameters().Initialize or a load. `mesh` and `config`
  // outlive the model.
  RankModel(const kernels::Kernels& kernels, Mesh& mesh,
            const RunConfig& config, const ActivationOptions& activations);
  RankModel(const RankModel&) = delete;
  RankModel& operator=(const RankModel&) = delete;

  // One iteration on this rank's share of the batch: forward, backward,
  // reduction, update. `step` counts updates from 1; `loss_scale` is a factor
  // of the loss in the backward pass alone, a power of two. Collective over the
  // world.
  absl::StatusOr<StepResult> Step(
      const Batch& batch, double lr, int64_t step,
      std::optional<double> loss_scale = std::nullopt);

  Parameters& parameters() { return parameters_; }
  Optimizer& optimizer() { return optimizer_; }
  LayerContext& context() { return context_; }

  // How its stage spent the steps so far.
  const StageTimes& stage_times() const { return stage_.times(); }

  // What the rank keeps for the whole run.
  int64_t parameter_bytes() const;
  int64_t gradient_bytes() const;
  int64_t optimizer_bytes() const;

  // That, and the most that activations, their gradients and scratch took in
  // any step so far.
  RankMemory memory() const {
    return {.parameter_bytes = parameter_bytes(),
            .gradient_bytes = gradient_bytes(),
            .optimizer_bytes = optimizer_bytes(),
            .activation_bytes = activation_bytes_};
  }

 private:
  absl::Status CountLoad(const Batch& batch);
  absl::StatusOr<float> MeanLoss(std::span<const double> sample_losses);

  Mesh& mesh_;
  const RunConfig& config_;
  Parameters parameters_;
  std::optional<TiedGradient> tied_;
  SequenceShards shards_;
  Gradients gradients_;
  LayerContext context_;
  Stage stage_;
  Optimizer optimizer_;
  int64_t activation_bytes_ = 0;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_RANK_MODEL_H_
