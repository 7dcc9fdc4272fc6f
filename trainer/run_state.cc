// SPDX-License-Identifier: Apache-2.0
#include "trainer/run_state.h"

#include <string>
#include <type_traits>
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
    if (Has(key)) field = &(*object_)[key];
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

  bool Has(const char* key) const {
    return object_ != nullptr && object_->contains(key);
  }

  template <typename T>
  void ReadIfThere(const char* key, T& value) {
    if (Has(key)) Read(key, value);
  }

  absl::StatusOr<std::string> Text(const char* key) const {
    if (Has(key) && (*object_)[key].is_string()) {
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
constexpr char kLoadBalancing[] = "moe_router_load_balancing_type";
// A section not there where it has its defaults.
constexpr char kLossScaling[] = "loss_scaling";
// Keys not there without skipped iterations, and where no loss is scaled.
constexpr char kSkippedSamples[] = "skipped_samples";
constexpr char kGrowthTracker[] = "growth_tracker";
constexpr char kHysteresisTracker[] = "hysteresis_tracker";

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

json ToJson(const LossScaling& scaling) {
  return {{"loss_scale", scaling.constant},
          {"initial_loss_scale", scaling.initial},
          {"min_loss_scale", scaling.min},
          {"loss_scale_window", scaling.window},
          {"hysteresis", scaling.hysteresis}};
}

absl::StatusOr<LossScaling> LossScalingFromState(const json& state) {
  LossScaling scaling;
  if (!state.contains(kLossScaling)) return scaling;
  Fields fields(state, kLossScaling);
  fields.Read("loss_scale", scaling.constant);
  fields.Read("initial_loss_scale", scaling.initial);
  fields.Read("min_loss_scale", scaling.min);
  fields.Read("loss_scale_window", scaling.window);
  fields.Read("hysteresis", scaling.hysteresis);
  SS_RETURN_IF_ERROR(fields.status());
  return scaling;
}

json ToJson(const RunProgress& progress) {
  json object = {{"step", progress.step},
                 {"consumed_samples", progress.consumed_samples},
                 {"skipped_iterations", progress.skipped_iterations},
                 {"loss_scale", 1.0}};
  if (progress.skipped_samples > 0) {
    object[kSkippedSamples] = progress.skipped_samples;
  }
  if (progress.loss_scale.has_value()) {
    object["loss_scale"] = progress.loss_scale->scale;
    object[kGrowthTracker] = progress.loss_scale->growth_tracker;
    object[kHysteresisTracker] = progress.loss_scale->hysteresis_tracker;
  }
  return object;
}

absl::StatusOr<RunProgress> ProgressFromState(const json& state) {
  RunProgress progress;
  Fields fields(state, "progress");
  fields.Read("step", progress.step);
  fields.Read("consumed_samples", progress.consumed_samples);
  fields.ReadIfThere("skipped_iterations", progress.skipped_iterations);
  fields.ReadIfThere(kSkippedSamples, progress.skipped_samples);
  if (fields.Has(kGrowthTracker) || fields.Has(kHysteresisTracker)) {
    LossScale& scale = progress.loss_scale.emplace();
    fields.Read("loss_scale", scale.scale);
    fields.Read(kGrowthTracker, scale.growth_tracker);
    fields.Read(kHysteresisTracker, scale.hysteresis_tracker);
  }
  SS_RETURN_IF_ERROR(fields.status());
  if (progress.loss_scale.has_value()) {
    const absl::Status valid = Validate(*progress.loss_scale);
    if (!valid.ok()) {
      return absl::DataLossError(
          absl::StrCat("checkpoint state: progress: ", valid.message()));
    }
  }
  if (progress.step < 0 || progress.consumed_samples < 0 ||
      progress.skipped_iterations < 0 || progress.skipped_samples < 0) {
    return absl::DataLossError("checkpoint state: progress is negative");
  }
  if (progress.skipped_iterations > progress.step ||
      progress.skipped_samples > progress.consumed_samples) {
    return absl::DataLossError(
        "checkpoint state: progress has more skipped than done");
  }
  return progress;
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
      {"progress", ToJson(run.progress)},
  };
  const auto add = [&state](const char* key, double value) {
    if (value != 0) state["training"][key] = value;
  };
  add(kAttentionDropout, config.attention_dropout);
  add(kHiddenDropout, config.hidden_dropout);
  add(kMoeAuxLossCoeff, config.moe_loss.aux_coeff);
  add(kMoeZLossCoeff, config.moe_loss.z_coeff);
  if (config.moe_loss.load_balancing != MoeLoss().load_balancing) {
    state["training"][kLoadBalancing] =
        std::string(Name(config.moe_loss.load_balancing));
  }
  if (config.loss_scaling != LossScaling{}) {
    state[kLossScaling] = ToJson(config.loss_scaling);
  }
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
  if (training.Has(kLoadBalancing)) {
    SS_ASSIGN_OR_RETURN(const std::string kind, training.Text(kLoadBalancing));
    const absl::StatusOr<LoadBalancing> parsed = ParseLoadBalancing(kind);
    if (!parsed.ok()) {
      return absl::DataLossError(absl::StrCat("checkpoint state: training.",
                                              kLoadBalancing, ": ",
                                              parsed.status().message()));
    }
    config.moe_loss.load_balancing = *parsed;
  }
  SS_ASSIGN_OR_RETURN(config.optimizer, OptimizerFromState(state));
  SS_ASSIGN_OR_RETURN(config.schedule, ScheduleFromState(state));
  SS_ASSIGN_OR_RETURN(config.numerics, reshard::NumericsFromJson(state.value(
                                           "numerics", json::object())));
  SS_ASSIGN_OR_RETURN(config.loss_scaling, LossScalingFromState(state));
  SS_ASSIGN_OR_RETURN(run.progress, ProgressFromState(state));
  run.data = state.value("data", json::object());
  return run;
}

json ToRecord(const reshard::Layout& layout, int64_t micro_batch_size,
              const ActivationOptions& activations) {
  json record = {{"layout", reshard::ToJson(layout)},
                 {kMicroBatchSize, micro_batch_size}};
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

}  // namespace shardshift::trainer
