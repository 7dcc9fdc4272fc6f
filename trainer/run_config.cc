// SPDX-License-Identifier: Apache-2.0
#include "trainer/run_config.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::trainer {
namespace {

absl::Status CheckDropout(const char* flag, double probability) {
  // So that what is kept can be scaled by a float.
  constexpr double kMost = 0.999;
  if (probability >= 0 && probability <= kMost) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " is ", probability, ", expected 0 to ", kMost));
}

absl::Status CheckMoeLoss(const char* flag, double coeff,
                          const reshard::ModelConfig& model) {
  if (!(coeff >= 0 && std::isfinite(coeff))) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " is ", coeff, ", expected 0 or more, finite"));
  }
  if (coeff == 0 || model.has_experts()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " is ", coeff,
                   ", but the model has no experts (--num-experts); drop the "
                   "flag"));
}

// Products of two such numbers do not overflow.
absl::Status CheckCount(const char* flag, int64_t value) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  if (value >= 1 && value <= kMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " is ", value, ", expected 1 to ", kMax));
}

absl::Status Validate(const OptimizerConfig& optimizer) {
  const auto check = [](const char* flag, double value, double below) {
    if (value >= 0 && value < below) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " is ", value, ", expected 0 to below ", below));
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  absl::Status status = check("--adam-beta1", optimizer.beta1, 1.0);
  status.Update(check("--adam-beta2", optimizer.beta2, 1.0));
  // Updates divide by it, as a float, where all gradients have been 0.
  constexpr double kMinEps = std::numeric_limits<float>::min();
  if (!(optimizer.eps >= kMinEps && optimizer.eps < kInfinity)) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("--adam-eps is ", optimizer.eps, ", expected ", kMinEps,
                     " or more, finite")));
  }
  status.Update(check("--weight-decay", optimizer.weight_decay, kInfinity));
  status.Update(check("--clip-grad", optimizer.clip_grad, kInfinity));
  return status;
}

}  // namespace

absl::Status CheckTrainable(const reshard::ModelConfig& model) {
  if (!model.has_experts() || !model.add_bias_linear) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("the model has --num-experts ", model.num_experts,
                   " and biases, which train cannot run; a new model needs "
                   "--disable-bias-linear; `reshard` and `ckpt` work with such "
                   "checkpoints"));
}

absl::Status Validate(const ActivationOptions& activations,
                      const reshard::ModelConfig& model,
                      const reshard::Layout& layout) {
  if (!model.has_experts() || layout.tensor == 1 ||
      activations.sequence_parallel) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--num-experts ", model.num_experts,
      " with --tensor-model-parallel-size ", layout.tensor,
      " needs --sequence-parallel, as in Megatron: each tensor-parallel rank "
      "routes tokens of its own"));
}

absl::Status Validate(const RunConfig& config, const reshard::Layout& layout,
                      int64_t micro_batch_size) {
  SS_RETURN_IF_ERROR(CheckCount("--seq-length", config.seq_length));
  SS_RETURN_IF_ERROR(CheckCount("--micro-batch-size", micro_batch_size));
  SS_RETURN_IF_ERROR(
      CheckCount("--global-batch-size", config.global_batch_size));
  SS_RETURN_IF_ERROR(reshard::Validate(config.model, layout));
  if (config.model.position_embedding ==
          reshard::PositionEmbedding::kLearnedAbsolute &&
      config.seq_length > config.model.max_position_embeddings) {
    return absl::InvalidArgumentError(
        absl::StrCat("--seq-length ", config.seq_length,
                     " exceeds "
                     "--max-position-embeddings ",
                     config.model.max_position_embeddings));
  }
  const int64_t per_step = micro_batch_size * layout.data;
  if (config.global_batch_size % per_step != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--global-batch-size ", config.global_batch_size,
        " is not divisible by --micro-batch-size ", micro_batch_size,
        " times --data-parallel-size ", layout.data, " = ", per_step));
  }
  SS_RETURN_IF_ERROR(reshard::Validate(config.numerics, config.model,
                                       config.seq_length,
                                       config.global_batch_size));
  SS_RETURN_IF_ERROR(reshard::CheckLayoutFits(config.numerics, layout));
  SS_RETURN_IF_ERROR(
      CheckDropout("--attention-dropout", config.attention_dropout));
  SS_RETURN_IF_ERROR(CheckDropout("--hidden-dropout", config.hidden_dropout));
  SS_RETURN_IF_ERROR(CheckMoeLoss("--moe-aux-loss-coeff",
                                  config.moe_loss.aux_coeff, config.model));
  SS_RETURN_IF_ERROR(CheckMoeLoss("--moe-z-loss-coeff", config.moe_loss.z_coeff,
                                  config.model));
  SS_RETURN_IF_ERROR(Validate(config.optimizer));
  SS_RETURN_IF_ERROR(Validate(config.loss_scaling));
  return Validate(config.schedule);
}

}  // namespace shardshift::trainer
