// SPDX-License-Identifier: Apache-2.0
#include "tools/resolve_run.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/layout/numerics.h"
#include "tools/overlay.h"
#include "tools/resolve_activations.h"
#include "tools/resolve_model.h"
#include "tools/resolve_precision.h"

namespace shardshift {
namespace {

using trainer::LrDecayStyle;

// A choice of CLI11's, so that it has a value.
std::optional<trainer::LoadBalancing> GivenLoadBalancing(
    const RunFlags& flags) {
  if (!flags.moe_router_load_balancing_type.has_value()) return std::nullopt;
  return trainer::ParseLoadBalancing(*flags.moe_router_load_balancing_type)
      .value();
}

bool GivesStages(const LayoutFlags& flags) {
  return flags.layers_per_virtual_stage.has_value() ||
         flags.virtual_stages.has_value() ||
         flags.first_stage_layers.has_value() ||
         flags.last_stage_layers.has_value() ||
         flags.account_for_embedding.has_value() ||
         flags.account_for_loss.has_value() || flags.stage_layers.has_value();
}

// The flags that hand out layers to stages go together, and with the number of
// stages: none is left of the checkpoint's where one is given.
void SetStages(const LayoutFlags& flags, reshard::Layout& layout,
               Overlay& overlay) {
  const reshard::Layout before = layout;
  overlay.Set("--pipeline-model-parallel-size", flags.pipeline, layout.pipeline,
              Change::kFree);
  if (layout.pipeline == before.pipeline && !GivesStages(flags)) return;
  const reshard::Layout even = {
      .tensor = before.tensor,
      .pipeline = layout.pipeline,
      .data = before.data,
      .distributed_optimizer = before.distributed_optimizer,
      .expert = before.expert,
      .expert_tensor = before.expert_tensor};
  LayoutFlags stages = flags;
  stages.tensor = stages.data = std::nullopt;
  stages.expert = stages.expert_tensor = std::nullopt;
  stages.distributed_optimizer = std::nullopt;
  layout = ApplyLayout(stages, even);
  reshard::Layout same_stages = before;
  same_stages.pipeline = layout.pipeline;
  if (layout == same_stages) return;
  overlay.Note(absl::StrCat(
      "layers go to stages as in ", reshard::ToString(layout),
      ", in the checkpoint's run as in ", reshard::ToString(before)));
}

std::optional<int64_t> InSamples(const std::optional<int64_t>& iterations,
                                 int64_t global_batch_size) {
  if (!iterations.has_value()) return std::nullopt;
  return *iterations * global_batch_size;
}

absl::Status SetTraining(const RunFlags& flags, trainer::RunConfig& config,
                         Overlay& overlay) {
  const Change schedule = Change::kSchedule;
  overlay.Set("--seq-length", flags.seq_length, config.seq_length,
              Change::kNever);
  overlay.Set("--seed", flags.seed, config.seed, Change::kNever);
  overlay.Set("--init-method-std", flags.init_method_std,
              config.init_method_std, Change::kNever);
  overlay.Set("--attention-dropout", flags.attention_dropout,
              config.attention_dropout, schedule);
  overlay.Set("--hidden-dropout", flags.hidden_dropout, config.hidden_dropout,
              schedule);
  overlay.Set("--moe-router-load-balancing-type", GivenLoadBalancing(flags),
              config.moe_loss.load_balancing, schedule);
  overlay.Set("--moe-aux-loss-coeff", flags.moe_aux_loss_coeff,
              config.moe_loss.aux_coeff, schedule);
  overlay.Set("--moe-z-loss-coeff", flags.moe_z_loss_coeff,
              config.moe_loss.z_coeff, schedule);
  overlay.Set("--global-batch-size", flags.global_batch_size,
              config.global_batch_size, schedule);
  overlay.Set("--adam-beta1", flags.adam_beta1, config.optimizer.beta1,
              schedule);
  overlay.Set("--adam-beta2", flags.adam_beta2, config.optimizer.beta2,
              schedule);
  overlay.Set("--adam-eps", flags.adam_eps, config.optimizer.eps, schedule);
  overlay.Set("--weight-decay", flags.weight_decay,
              config.optimizer.weight_decay, schedule);
  overlay.Set("--clip-grad", flags.clip_grad, config.optimizer.clip_grad,
              schedule);

  std::optional<LrDecayStyle> style;
  if (flags.lr_decay_style.has_value()) {
    SS_ASSIGN_OR_RETURN(style,
                        trainer::ParseLrDecayStyle(*flags.lr_decay_style));
  }
  trainer::LrSchedule& lr = config.schedule;
  overlay.Set("--lr-decay-style", style, lr.style, schedule);
  overlay.Set("--lr", flags.lr, lr.max_lr, schedule);
  overlay.Set("--min-lr", flags.min_lr, lr.min_lr, schedule);
  overlay.Set("--lr-warmup-init", flags.lr_warmup_init, lr.init_lr, schedule);
  overlay.Set("--lr-decay-iters in samples",
              InSamples(flags.lr_decay_iters, config.global_batch_size),
              lr.decay_samples, schedule);
  overlay.Set("--lr-warmup-iters in samples",
              InSamples(flags.lr_warmup_iters, config.global_batch_size),
              lr.warmup_samples, schedule);
  return absl::OkStatus();
}

constexpr int64_t kDefaultVocabMultiple = 128;

}  // namespace

absl::StatusOr<ResolvedRun> ResolveNewRun(
    const RunFlags& flags, const std::optional<KnownModel>& weights) {
  SS_ASSIGN_OR_RETURN(const std::optional<KnownModel> known,
                      FindKnownModel(flags.model, weights));
  ResolvedRun run;
  trainer::RunConfig& config = run.config;
  SS_RETURN_IF_ERROR(known.has_value()
                         ? TakeModel(*known, flags.model, config.model)
                         : MakeModel(flags, config.model));
  SS_RETURN_IF_ERROR(Require("--seq-length", flags.seq_length.has_value()));
  SS_RETURN_IF_ERROR(
      Require("--micro-batch-size", flags.micro_batch_size.has_value()));
  SS_RETURN_IF_ERROR(Require("--lr", flags.lr.has_value()));

  run.layout = ApplyLayout(flags.layout, {});
  run.micro_batch_size = *flags.micro_batch_size;
  config.global_batch_size = run.micro_batch_size * run.layout.data;
  Overlay overlay(nullptr, "", /*override_schedule=*/false);
  SetActivations(flags.activations, run.activations, overlay);
  SetPrecision(flags.precision, run.activations.precision, config.loss_scaling,
               overlay);
  SS_RETURN_IF_ERROR(SetTraining(flags, config, overlay));
  SS_RETURN_IF_ERROR(overlay.status());
  if (config.schedule.decay_samples == 0) {
    SS_RETURN_IF_ERROR(Require("--train-iters", flags.train_iters.has_value()));
    config.schedule.decay_samples =
        std::max<int64_t>(1, *flags.train_iters) * config.global_batch_size;
  }

  config.numerics.tensor_granularity = flags.tensor_granularity.value_or(
      reshard::ChooseTensorGranularity(config.model, config.seq_length));
  config.numerics.data_granularity =
      flags.data_granularity.value_or(reshard::ChooseDataGranularity(
          config.global_batch_size, run.layout.data));
  SS_ASSIGN_OR_RETURN(
      config.model.padded_vocab_size,
      reshard::ChoosePaddedVocabSize(
          config.model.vocab_size,
          flags.model.make_vocab_size_divisible_by.value_or(
              kDefaultVocabMultiple),
          config.numerics.tensor_granularity, run.layout.tensor));
  SS_RETURN_IF_ERROR(Validate(config, run.layout, run.micro_batch_size));
  return run;
}

absl::StatusOr<ResolvedRun> ResolveResumedRun(const RunFlags& flags,
                                              const CheckpointRun& checkpoint) {
  ResolvedRun run;
  trainer::RunConfig& config = run.config;
  config = checkpoint.run.config;
  SS_RETURN_IF_ERROR(trainer::CheckTrainable(config.model));
  SS_RETURN_IF_ERROR(Require("--micro-batch-size",
                             checkpoint.micro_batch_size.has_value() ||
                                 flags.micro_batch_size.has_value(),
                             "the checkpoint does not tell it"));
  // A record that tells one tells both.
  SS_RETURN_IF_ERROR(Require("--fp32, --bf16 or --fp16",
                             checkpoint.micro_batch_size.has_value() ||
                                 flags.precision.precision.has_value(),
                             "the checkpoint does not tell it"));
  // Against what is unknown nothing changes.
  run.layout = checkpoint.layout.value_or(ApplyLayout(flags.layout, {}));
  run.micro_batch_size =
      checkpoint.micro_batch_size.value_or(flags.micro_batch_size.value_or(0));
  run.activations = checkpoint.activations;
  if (!checkpoint.micro_batch_size.has_value()) {
    run.activations.precision =
        trainer::ParsePrecision(*flags.precision.precision).value();
  }
  Overlay overlay("the checkpoint's run",
                  "; a run keeps it: drop the flag, or start a new run "
                  "without --load",
                  flags.override_schedule);
  const LayoutFlags& layout = flags.layout;
  const Change free = Change::kFree;
  overlay.Set("--tensor-model-parallel-size", layout.tensor, run.layout.tensor,
              free);
  SetStages(layout, run.layout, overlay);
  overlay.Set("--data-parallel-size", layout.data, run.layout.data, free);
  overlay.Set("--use-distributed-optimizer", layout.distributed_optimizer,
              run.layout.distributed_optimizer, free);
  overlay.Set("--expert-model-parallel-size", layout.expert, run.layout.expert,
              free);
  overlay.Set("--expert-tensor-parallel-size", layout.expert_tensor,
              run.layout.expert_tensor, free);
  overlay.Set("--micro-batch-size", flags.micro_batch_size,
              run.micro_batch_size, free);
  if (flags.model.hf_config.has_value()) {
    SS_ASSIGN_OR_RETURN(const KnownModel known,
                        ReadHfConfigFlag(*flags.model.hf_config));
    SS_RETURN_IF_ERROR(
        CheckSameModel(known, {config.model, "the checkpoint's run"}));
  }
  SetActivations(flags.activations, run.activations, overlay);
  SetPrecision(flags.precision, run.activations.precision, config.loss_scaling,
               overlay);
  SetModel(flags.model, config.model, overlay);
  SS_RETURN_IF_ERROR(SetTraining(flags, config, overlay));
  if (flags.model.make_vocab_size_divisible_by.has_value()) {
    SS_ASSIGN_OR_RETURN(
        const std::optional<int64_t> padded,
        reshard::ChoosePaddedVocabSize(
            config.model.vocab_size, *flags.model.make_vocab_size_divisible_by,
            config.numerics.tensor_granularity, 1));
    overlay.Set("the padded vocabulary", padded, config.model.padded_vocab_size,
                Change::kNever);
  }
  overlay.Set("--tensor-granularity", flags.tensor_granularity,
              config.numerics.tensor_granularity, free);
  overlay.Set("--data-granularity", flags.data_granularity,
              config.numerics.data_granularity, free);
  SS_RETURN_IF_ERROR(overlay.status());
  SS_RETURN_IF_ERROR(Validate(config, run.layout, run.micro_batch_size));
  run.changes = std::move(overlay.changes());
  return run;
}

}  // namespace shardshift
