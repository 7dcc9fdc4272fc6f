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

using nlohmann::json;

// Reads numbers out of one object of the state, and remembers the first that
// is missing or mistyped.
class Fields {
 public:
  Fields(const json& state, const char* section) : section_(section) {
    const auto it = state.find(section);
    if (it != state.end() && it->is_object()) object_ = &*it;
  }

  template <typename T>
  void Read(const char* key, T& value) {
    const json* field = nullptr;
    if (object_ != nullptr && object_->contains(key)) field = &(*object_)[key];
    const bool fits =
        field != nullptr && (std::is_integral_v<T> ? field->is_number_integer()
                                                   : field->is_number());
    if (fits) {
      field->get_to(value);
      return;
    }
    status_.Update(absl::DataLossError(
        absl::StrCat("checkpoint state: ", section_, ".", key,
                     field == nullptr ? " is missing" : " is no number")));
  }

  template <typename T>
  void ReadIfThere(const char* key, T& value) {
    if (object_ != nullptr && object_->contains(key)) Read(key, value);
  }

  absl::StatusOr<std::string> Text(const char* key) const {
    if (object_ != nullptr && object_->contains(key) &&
        (*object_)[key].is_string()) {
      return (*object_)[key].get<std::string>();
    }
    return absl::DataLossError(
        absl::StrCat("checkpoint state: ", section_, ".", key, " is missing"));
  }

  const absl::Status& status() const { return status_; }

 private:
  const char* section_;
  const json* object_ = nullptr;
  absl::Status status_;
};

json ToJson(const LrSchedule& schedule) {
  return {{"lr_decay_style", std::string(LrDecayStyleName(schedule.style))},
          {"lr", schedule.max_lr},
          {"min_lr", schedule.min_lr},
          {"lr_warmup_init", schedule.init_lr},
          {"lr_warmup_samples", schedule.warmup_samples},
          {"lr_decay_samples", schedule.decay_samples}};
}

absl::StatusOr<LrSchedule> ScheduleFromState(const json& state) {
  Fields fields(state, "schedule");
  LrSchedule schedule;
  fields.Read("lr", schedule.max_lr);
  fields.Read("min_lr", schedule.min_lr);
  fields.Read("lr_warmup_init", schedule.init_lr);
  fields.Read("lr_warmup_samples", schedule.warmup_samples);
  fields.Read("lr_decay_samples", schedule.decay_samples);
  SS_RETURN_IF_ERROR(fields.status());
  SS_ASSIGN_OR_RETURN(const std::string style, fields.Text("lr_decay_style"));
  SS_ASSIGN_OR_RETURN(schedule.style, ParseLrDecayStyle(style));
  return schedule;
}

constexpr char kOptimizerName[] = "adamw";

constexpr char kMicroBatchSize[] = "micro_batch_size";

// Keys of the state that are not there without dropout.
constexpr char kAttentionDropout[] = "attention_dropout";
constexpr char kHiddenDropout[] = "hidden_dropout";
// And those not there without losses of the routers.
constexpr char kMoeAuxLossCoeff[] = "moe_aux_loss_coeff";
constexpr char kMoeZLossCoeff[] = "moe_z_loss_coeff";

json ToJson(const OptimizerConfig& optimizer) {
  return {{"adam_beta1", optimizer.beta1},
          {"adam_beta2", optimizer.beta2},
          {"adam_eps", optimizer.eps},
          {"weight_decay", optimizer.weight_decay},
          {"clip_grad", optimizer.clip_grad},
          {"name", kOptimizerName}};
}

absl::StatusOr<OptimizerConfig> OptimizerFromState(const json& state) {
  Fields fields(state, "optimizer");
  OptimizerConfig optimizer;
  fields.Read("adam_beta1", optimizer.beta1);
  fields.Read("adam_beta2", optimizer.beta2);
  fields.Read("adam_eps", optimizer.eps);
  fields.Read("weight_decay", optimizer.weight_decay);
  fields.Read("clip_grad", optimizer.clip_grad);
  SS_RETURN_IF_ERROR(fields.status());
  SS_ASSIGN_OR_RETURN(const std::string name, fields.Text("name"));
  if (name == kOptimizerName) return optimizer;
  return absl::UnimplementedError(
      absl::StrCat("checkpoint state: optimizer.name is \"", name,
                   "\", this version has only ", kOptimizerName));
}

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

json ToState(const StoredRun& run) {
  const RunConfig& config = run.config;
  json state = {
      {"model", reshard::ToJson(config.model)},
      {"training",
       {{"seq_length", config.seq_length},
        {"global_batch_size", config.global_batch_size},
        {"seed", config.seed},
        {"init_method_std", config.init_method_std}}},
      {"optimizer", ToJson(config.optimizer)},
      {"schedule", ToJson(config.schedule)},
      {"numerics", reshard::ToJson(config.numerics)},
      {"data", run.data},
      // fp32 needs no loss scaling, so no iteration is ever skipped.
      {"progress",
       {{"step", run.progress.step},
        {"consumed_samples", run.progress.consumed_samples},
        {"skipped_iterations", 0},
        {"loss_scale", 1.0}}},
  };
  const auto add = [&state](const char* key, double value) {
    if (value != 0) state["training"][key] = value;
  };
  add(kAttentionDropout, config.attention_dropout);
  add(kHiddenDropout, config.hidden_dropout);
  add(kMoeAuxLossCoeff, config.moe_loss.aux_coeff);
  add(kMoeZLossCoeff, config.moe_loss.z_coeff);
  return state;
}

absl::StatusOr<StoredRun> RunFromState(const json& state) {
  StoredRun run;
  RunConfig& config = run.config;
  SS_ASSIGN_OR_RETURN(config.model,
                      reshard::ModelFromJson(state.value("model", json())));
  Fields training(state, "training");
  training.Read("seq_length", config.seq_length);
  training.Read("global_batch_size", config.global_batch_size);
  training.Read("seed", config.seed);
  training.Read("init_method_std", config.init_method_std);
  training.ReadIfThere(kAttentionDropout, config.attention_dropout);
  training.ReadIfThere(kHiddenDropout, config.hidden_dropout);
  training.ReadIfThere(kMoeAuxLossCoeff, config.moe_loss.aux_coeff);
  training.ReadIfThere(kMoeZLossCoeff, config.moe_loss.z_coeff);
  SS_RETURN_IF_ERROR(training.status());
  SS_ASSIGN_OR_RETURN(config.optimizer, OptimizerFromState(state));
  SS_ASSIGN_OR_RETURN(config.schedule, ScheduleFromState(state));
  SS_ASSIGN_OR_RETURN(config.numerics, reshard::NumericsFromJson(state.value(
                                           "numerics", json::object())));
  Fields progress(state, "progress");
  progress.Read("step", run.progress.step);
  progress.Read("consumed_samples", run.progress.consumed_samples);
  SS_RETURN_IF_ERROR(progress.status());
  if (run.progress.step < 0 || run.progress.consumed_samples < 0) {
    return absl::DataLossError("checkpoint state: progress is negative");
  }
  run.data = state.value("data", json::object());
  return run;
}

json ToRecord(const reshard::Layout& layout, int64_t micro_batch_size,
              const ActivationOptions& activations) {
  json record = {{"layout", reshard::ToJson(layout)},
                 {kMicroBatchSize, micro_batch_size},
                 {"precision", "fp32"}};
  AddToRecord(activations, record);
  return record;
}

absl::StatusOr<StoredRecord> RecordFromJson(const json& record) {
  StoredRecord stored;
  SS_ASSIGN_OR_RETURN(stored.activations, ActivationsFromRecord(record));
  const auto it = record.find(kMicroBatchSize);
  if (it == record.end()) return stored;
  if (!it->is_number_integer()) {
    return absl::DataLossError(absl::StrCat(
        "checkpoint record: ", kMicroBatchSize, " is no whole number"));
  }
  stored.micro_batch_size = it->get<int64_t>();
  return stored;
}

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
  return Validate(config.schedule);
}

}  // namespace shardshift::trainer
