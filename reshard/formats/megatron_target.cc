// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/megatron_target.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/megatron_arguments.h"
#include "reshard/formats/megatron_common.h"
#include "reshard/formats/pickle_json.h"
#include "reshard/formats/plan_export.h"
#include "reshard/layout/stages.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

ckpt::DType WeightDType(const CheckpointState& state,
                        const MegatronTargetChoice& choice) {
  if (choice.dtype.has_value()) return *choice.dtype;
  const json& global =
      StateValue(state.state, {"megatron", "args", "params_dtype", "name"});
  const json& precision = StateValue(state.record, {"precision"});
  if (global == "torch bfloat16" || precision == "bf16") {
    return ckpt::DType::kBF16;
  }
  if (global == "torch float16" || precision == "fp16") {
    return ckpt::DType::kF16;
  }
  return ckpt::DType::kF32;
}

// Megatron pads the vocabulary to a multiple that goes with TP.
int64_t PaddedVocabulary(const json& arguments, int64_t vocab_size,
                         int64_t tensor_ranks) {
  int64_t multiple = 1;
  const json& found = StateValue(arguments, {"make_vocab_size_divisible_by"});
  if (found.is_number_integer()) {
    multiple = std::clamp<int64_t>(found.get<int64_t>(), 1, int64_t{1} << 20);
  }
  multiple *= tensor_ranks;
  return (vocab_size + multiple - 1) / multiple * multiple;
}

// The first key in which two models differ.
std::string Difference(const ModelConfig& model, const ModelConfig& other) {
  const json ours = ToJson(model);
  const json theirs = ToJson(other);
  for (const auto& [key, value] : ours.items()) {
    const json& found = StateValue(theirs, {key.c_str()});
    if (found != value) {
      return absl::StrCat(key, " is ", value.dump(), ", and would become ",
                          found.dump());
    }
  }
  return "the model has less than the arguments say";
}

// Those of a run of ours.
json DefaultGroup(const json& arguments, int64_t step) {
  const auto of = [&](const char* key) { return StateValue(arguments, {key}); };
  json betas = json::array({of("adam_beta1"), of("adam_beta2")});
  return {{"lr", of("lr").is_number() ? of("lr") : json(0.0)},
          {"max_lr", of("lr").is_number() ? of("lr") : json(0.0)},
          {"min_lr", of("min_lr")},
          {"betas", {{"py", "tuple"}, {"items", std::move(betas)}}},
          {"eps", of("adam_eps")},
          {"weight_decay", of("weight_decay")},
          {"bias_correction", true},
          {"default_config", true},
          {"wd_mult", 1.0},
          {"lr_mult", 1.0},
          {"is_expert_parallel", false},
          {"is_decoupled_lr", false},
          {"step", step}};
}

json DefaultScheduler(const CheckpointState& state, const json& arguments) {
  const auto of = [&](const char* key) { return StateValue(arguments, {key}); };
  const auto samples = [&](const char* key) {
    const json& found = StateValue(state.state, {"schedule", key});
    return found.is_number() ? found : json(0);
  };
  return {{"max_lr", of("lr")},
          {"min_lr", of("min_lr")},
          {"lr_warmup_steps", samples("lr_warmup_samples")},
          {"lr_decay_steps", samples("lr_decay_samples")},
          {"lr_decay_style", of("lr_decay_style")},
          {"num_steps", of("consumed_train_samples")},
          {"start_wd", of("weight_decay")},
          {"end_wd", of("weight_decay")},
          {"wd_incr_style", "constant"},
          {"wd_incr_steps", samples("lr_decay_samples")}};
}

bool Decays(const json& group) {
  const json mult = GroupIdentity(group).front();
  return mult.is_number() && mult.get<double>() != 0;
}

bool IsOfExperts(const json& group) { return GroupIdentity(group)[2] == true; }

// The source's, of which those without an identity are of no use.
std::vector<json> GroupsOf(const CheckpointState& state, const json& arguments,
                           int64_t step) {
  std::vector<json> groups;
  const json& kept = StateValue(state.state, {"megatron", "param_groups"});
  if (kept.is_array()) {
    for (const json& group : kept) {
      if (!GroupIdentity(group).is_null()) groups.push_back(group);
    }
  }
  if (groups.empty()) groups.push_back(DefaultGroup(arguments, step));
  return groups;
}

// All parameters of a kind come into one group, as nobody knows which of them
// were in which.
absl::Status CheckOneOfEachKind(const std::vector<json>& groups) {
  for (size_t i = 0; i < groups.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (Decays(groups[i]) != Decays(groups[j]) ||
          IsOfExperts(groups[i]) != IsOfExperts(groups[j])) {
        continue;
      }
      std::vector<std::string> differences;
      for (const auto& [key, value] : groups[j].items()) {
        const json& other = StateValue(groups[i], {key.c_str()});
        if (value == other || key == "step") continue;
        differences.push_back(
            absl::StrCat(key, " ", value.dump(), " and ", other.dump()));
      }
      if (differences.empty()) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "param_groups: of parameters that ",
          Decays(groups[i]) ? "decay" : "do not decay", " there are groups of ",
          absl::StrJoin(differences, ", "),
          ", and one would be written for all; --weights-only leaves the "
          "optimizer behind"));
    }
  }
  return absl::OkStatus();
}

// Arguments of classes that are not written are named instead.
void DropUnwritable(MegatronTarget& target) {
  json kept = json::object();
  for (const auto& [key, value] : target.args.arguments.items()) {
    if (absl::IsPermissionDenied(PickleFromJson(value).status())) {
      target.left_out.push_back(
          absl::StrCat("args.", key, ", of a class that is not written"));
    } else {
      kept[key] = value;
    }
  }
  target.args.arguments = std::move(kept);
}

void NameLeftOut(const CheckpointState& state, MegatronTarget& target) {
  if (target.args.iteration == 0 && target.content == Content::kTraining) {
    target.left_out.emplace_back(
        "optimizer state, for Megatron's loader: iteration 0 is a release, of "
        "which it takes the weights alone");
  }
  // These became arguments, groups and the scheduler.
  NameState(
      state.state,
      {"model", "megatron", "progress", "optimizer", "schedule", "training"},
      target.left_out);
}

}  // namespace

std::string MegatronTarget::Tracker() const {
  return args.iteration == 0 ? "release" : absl::StrCat(args.iteration);
}

absl::StatusOr<PyValue::Attributes> MegatronTarget::Common(int64_t rank) const {
  PyValue::Attributes arguments;
  for (const auto& [key, value] : args.arguments.items()) {
    absl::StatusOr<PyValue> argument = PickleFromJson(value);
    if (!argument.ok()) {
      return Annotate(argument.status(), absl::StrCat("args.", key));
    }
    arguments.emplace_back(key, *std::move(argument));
  }
  arguments.emplace_back("rank", PyValue::Int(rank));
  PyValue::Attributes common;
  common.emplace_back("args", PyValue::Namespace(std::move(arguments)));
  common.emplace_back("checkpoint_version", PyValue::Float(3.0));
  common.emplace_back("iteration", PyValue::Int(args.iteration));
  SS_ASSIGN_OR_RETURN(PyValue operations,
                      PickleFromJson(floating_point_operations));
  common.emplace_back("num_floating_point_operations_so_far",
                      std::move(operations));
  if (content == Content::kTraining) {
    SS_ASSIGN_OR_RETURN(PyValue state, PickleFromJson(scheduler));
    common.emplace_back("opt_param_scheduler", std::move(state));
  }
  return common;
}

absl::StatusOr<PyValue::Attributes> GroupOf(const MegatronTarget& target,
                                            bool decays, bool experts) {
  // The best of what there is, and then what it lacks.
  const auto score = [&](const json& group) {
    return (Decays(group) == decays ? 1 : 0) +
           (IsOfExperts(group) == experts ? 2 : 0);
  };
  json group = *std::max_element(
      target.groups.begin(), target.groups.end(),
      [&](const json& a, const json& b) { return score(a) < score(b); });
  group["is_expert_parallel"] = experts;
  if (Decays(group) != decays) {
    group["wd_mult"] = decays ? 1.0 : 0.0;
    group["weight_decay"] =
        decays ? StateValue(target.args.arguments, {"weight_decay"})
               : json(0.0);
  }
  PyValue::Attributes attributes;
  for (const auto& [key, value] : group.items()) {
    absl::StatusOr<PyValue> attribute = PickleFromJson(value);
    if (!attribute.ok()) {
      return Annotate(attribute.status(), absl::StrCat("param_groups: ", key));
    }
    attributes.emplace_back(key, *std::move(attribute));
  }
  return attributes;
}

absl::StatusOr<MegatronTarget> PlanMegatronTarget(
    const CheckpointState& state, const MegatronTargetChoice& choice) {
  if (!choice.layout.stage_layers.empty()) {
    return absl::UnimplementedError(
        "--pipeline-model-parallel-layout: Megatron's arguments would hold an "
        "object of its own; give the stages by other flags");
  }
  SS_RETURN_IF_ERROR(ValidateStages(state.model, choice.layout));
  MegatronTarget target;
  target.content = choice.content;
  target.weight_dtype = WeightDType(state, choice);
  json arguments = ArgumentsFor(
      state,
      {.layout = choice.layout,
       .weight_dtype = target.weight_dtype,
       .has_optimizer = choice.content == Content::kTraining,
       .iteration = choice.iteration,
       .format = choice.format == Format::kMegatron ? "torch" : "torch_dist"});
  ModelConfig model = state.model;
  model.padded_vocab_size =
      PaddedVocabulary(arguments, model.vocab_size, choice.layout.tensor);
  arguments["padded_vocab_size"] = model.padded_vocab_size;
  arguments.erase("rank");
  absl::StatusOr<MegatronArgs> args =
      ParseMegatronArgs(std::move(arguments), model.vocab_size);
  if (!args.ok()) {
    return Annotate(args.status(), "the arguments of the target");
  }
  target.args = *std::move(args);
  DropUnwritable(target);
  if (target.args.model != model) {
    return absl::FailedPreconditionError(
        absl::StrCat("Megatron's arguments cannot describe this model: ",
                     Difference(model, target.args.model)));
  }
  // What the arguments do not tell, such as that layers are counted singly.
  target.args.layout = choice.layout;
  target.style = LayerStyleOf(target.args.arguments);
  const json& skipped =
      StateValue(state.state, {"progress", "skipped_iterations"});
  target.optimizer_step =
      target.args.iteration -
      (skipped.is_number_integer() ? skipped.get<int64_t>() : 0);
  target.groups = GroupsOf(state, target.args.arguments, target.optimizer_step);
  if (choice.content == Content::kTraining) {
    SS_RETURN_IF_ERROR(CheckOneOfEachKind(target.groups));
  }
  target.scheduler =
      StateValue(state.state, {"megatron", "common", "opt_param_scheduler"});
  if (target.scheduler.is_null()) {
    target.scheduler = DefaultScheduler(state, target.args.arguments);
  }
  target.floating_point_operations = StateValue(
      state.state,
      {"megatron", "common", "num_floating_point_operations_so_far"});
  if (target.floating_point_operations.is_null()) {
    target.floating_point_operations = 0;
  }
  NameLeftOut(state, target);
  return target;
}

}  // namespace shardshift::reshard
