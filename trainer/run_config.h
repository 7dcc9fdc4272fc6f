// What defines a training run, as opposed to where and how it runs: the part of
// the options that a checkpoint's state keeps and a resume takes over.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_RUN_CONFIG_H_
#define SHARDSHIFT_TRAINER_RUN_CONFIG_H_

#include <cstdint>

#include "absl/status/status.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/model_config.h"
#include "reshard/layout/numerics.h"
#include "trainer/activation_options.h"
#include "trainer/lr_schedule.h"
#include "trainer/moe_loss.h"
#include "trainer/optim/loss_scale.h"
#include "trainer/optim/optimizer.h"

namespace shardshift::trainer {

struct RunConfig {
  reshard::ModelConfig model;
  int64_t seq_length = 0;
  int64_t global_batch_size = 0;
  int64_t seed = 1234;
  double init_method_std = 0.02;
  // Shares of elements dropped: of attention probabilities; of the outputs of
  // embedding, attention and feed-forward blocks.
  double attention_dropout = 0;
  double hidden_dropout = 0;
  MoeLoss moe_loss;
  OptimizerConfig optimizer;
  LossScaling loss_scaling;  // in fp16
  LrSchedule schedule;
  reshard::NumericsConstants numerics;
};

// Refuses a model that the trainer cannot compute, though checkpoints of it
// exist.
// Errors: Unimplemented naming the flag and what to do.
absl::Status CheckTrainable(const reshard::ModelConfig& model);

// Refuses what the model cannot do on the layout.
// Errors: InvalidArgument naming the flags.
absl::Status Validate(const ActivationOptions& activations,
                      const reshard::ModelConfig& model,
                      const reshard::Layout& layout);

// Refuses a run that cannot be, or cannot be laid out like this.
// Errors: InvalidArgument naming flag and quantity.
absl::Status Validate(const RunConfig& config, const reshard::Layout& layout,
                      int64_t micro_batch_size);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_RUN_CONFIG_H_
