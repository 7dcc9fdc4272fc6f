// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/dcp_model_export.h"

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/status_macros.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/formats/dcp_writer.h"
#include "reshard/formats/hf_index.h"
#include "reshard/formats/hf_names.h"
#include "reshard/formats/hf_target.h"
#include "reshard/formats/storage_pieces.h"
#include "reshard/layout/content.h"

namespace shardshift::reshard {
namespace {

constexpr char kModelRoot[] = "model";
constexpr char kOptimizerRoot[] = "optim";
// Up to which a float, in which AdamW counts its steps, holds every one.
constexpr int64_t kMaxSteps = int64_t{1} << 24;

std::string ModelKey(absl::string_view name) {
  return absl::StrCat(kModelRoot, ".", name);
}

std::string StateKey(absl::string_view name, absl::string_view state) {
  return absl::StrCat(kOptimizerRoot, ".state.", name, ".", state);
}

// How many steps the optimizer has made.
absl::StatusOr<float> StepOf(const nlohmann::json& state) {
  const auto progress = state.find("progress");
  const auto number = [&](const char* key) -> std::optional<int64_t> {
    if (progress == state.end() || !progress->is_object()) return std::nullopt;
    const auto found = progress->find(key);
    if (found == progress->end() || !found->is_number_integer()) {
      return std::nullopt;
    }
    return found->get<int64_t>();
  };
  const std::optional<int64_t> iterations = number("step");
  const int64_t skipped = number("skipped_iterations").value_or(0);
  int64_t step = 0;
  if (iterations.has_value() &&
      !__builtin_sub_overflow(*iterations, skipped, &step) && step >= 0 &&
      step <= kMaxSteps) {
    return static_cast<float>(step);
  }
  return absl::FailedPreconditionError(
      "the state does not tell how many steps the optimizer has made, in "
      "`progress`, or more than a float can count; --weights-only writes the "
      "model alone");
}

class ModelExporter {
 public:
  ModelExporter(const ckpt::Reader& source, const HfTarget& target,
                const std::vector<LogicalTensor>& tensors, bool is_tied)
      : source_(source),
        target_(target),
        tensors_(tensors),
        is_tied_(is_tied),
        writer_({.roots = {kModelRoot, kOptimizerRoot}}),
        file_(writer_.AddFile(kDcpDataFile)) {}

  // Gives the dtype of the first weight.
  absl::StatusOr<ckpt::DType> AddWeights(Content content,
                                         std::optional<ckpt::DType> dtype) {
    SS_ASSIGN_OR_RETURN(
        const std::vector<ckpt::DType> dtypes,
        AddHfWeights(source_, content, tensors_, target_, dtype, plan_));
    for (size_t i = 0; i < dtypes.size(); ++i) {
      AddModelTensor(i, kWeightRoles[0], dtypes[i]);
    }
    return dtypes.front();
  }

  absl::Status AddTraining(float step) {
    for (const char* role : kOptimizerRoles) {
      for (const LogicalTensor& tensor : tensors_) {
        SS_ASSIGN_OR_RETURN(const int64_t index,
                            source_.FindTensor(tensor.name, role));
        plan_.tensors.push_back({index, tensor.name, role});
      }
    }
    for (size_t i = 0; i < target_.stored.size(); ++i) {
      const std::string& name = target_.stored[i].name;
      AddModelTensor(i, kOptimizerRoles[0], ckpt::DType::kF32);
      for (const char* role : {kOptimizerRoles[1], kOptimizerRoles[2]}) {
        Add(StateKey(name, role), i, role, ckpt::DType::kF32);
      }
      writer_.AddScalar(StateKey(name, "step"), file_, step);
    }
    return absl::OkStatus();
  }

  ExportPlan Finish(std::string config) && {
    plan_.texts.push_back({kHfConfigName, std::move(config)});
    std::move(writer_).Finish(plan_);
    return std::move(plan_);
  }

 private:
  void AddModelTensor(size_t i, const char* role, ckpt::DType dtype) {
    const StoredTensor& stored = target_.stored[i];
    const size_t tensor = Add(ModelKey(stored.name), i, role, dtype);
    // The embedding is the first logical tensor, and of a tied model the output
    // layer, too.
    if (stored.pieces.front().tensor == 0 && is_tied_) {
      writer_.AddAlias(ModelKey(kHfHeadName), tensor);
    }
  }

  size_t Add(const std::string& key, size_t i, const char* role,
             ckpt::DType dtype) {
    const StoredTensor& stored = target_.stored[i];
    const size_t tensor = writer_.AddTensor(key, dtype, stored.shape);
    writer_.AddChunk(
        tensor, file_, ckpt::WholeBox(stored.shape),
        StoragePiecesOf(stored.pieces, tensors_, role, dtype),
        stored.transposed ? ChunkOrder::kColumns : ChunkOrder::kRows);
    return tensor;
  }

  const ckpt::Reader& source_;
  const HfTarget& target_;
  const std::vector<LogicalTensor>& tensors_;
  const bool is_tied_;
  ExportPlan plan_;
  DcpWriter writer_;
  const size_t file_;
};

// FSDP's parameters are the masters.
void NameWeights(const ckpt::Reader& source, ExportPlan& plan) {
  for (const std::string& name : KeptWeights(source)) {
    plan.left_out.push_back(
        absl::StrCat("weight ", name, ", which is not its master, rounded"));
  }
}

void NameLeftOut(const CheckpointState& state, bool has_optimizer,
                 bool is_training, ExportPlan& plan) {
  if (has_optimizer && !is_training) {
    plan.left_out.emplace_back("optimizer state (exp_avg, exp_avg_sq)");
  }
  for (const auto& [key, value] : state.state.items()) {
    if (key == "model" || key == "huggingface") continue;
    if (key == "progress" && is_training && value.is_object()) {
      for (const auto& [name, count] : value.items()) {
        // The steps stay, as those of the optimizer; what is 0 is not lost.
        if (name == "step" || count == 0) continue;
        plan.left_out.push_back(absl::StrCat("state: progress.", name));
      }
      continue;
    }
    plan.left_out.push_back(absl::StrCat("state: ", key));
  }
  if (is_training) {
    plan.left_out.emplace_back(
        "hyper-parameters of the optimizer (param_groups): load with "
        "DefaultLoadPlanner(allow_partial_load=True)");
  }
}

}  // namespace

absl::StatusOr<ExportPlan> PlanDcpModelExport(const ckpt::Reader& source,
                                              const ExportChoice& choice) {
  if (choice.choice.select != "*") {
    return absl::InvalidArgumentError(
        "--select makes no whole model; with --generic any tensors can be "
        "written");
  }
  SS_ASSIGN_OR_RETURN(const WholeModel model, ReadWholeModel(source));
  const auto& [state, tensors, content] = model;
  SS_ASSIGN_OR_RETURN(const HfTarget target,
                      PlanHfTarget(state, HfForm::kModules));
  const bool has_optimizer = content == Content::kTraining;
  const bool is_training = has_optimizer && !choice.choice.weights_only;
  ModelExporter exporter(source, target, tensors,
                         !state.model.untie_embeddings_and_output_weights);
  ckpt::DType dtype = ckpt::DType::kF32;
  if (is_training) {
    if (choice.choice.dtype.has_value()) {
      return absl::InvalidArgumentError(
          "--dtype is for weights; optimizer state is stored as F32, and "
          "--weights-only leaves it behind");
    }
    SS_ASSIGN_OR_RETURN(const float step, StepOf(state.state));
    SS_RETURN_IF_ERROR(exporter.AddTraining(step));
  } else {
    SS_ASSIGN_OR_RETURN(dtype,
                        exporter.AddWeights(content, choice.choice.dtype));
  }
  SS_ASSIGN_OR_RETURN(std::string config,
                      HfConfigText(target, state.model, dtype));
  ExportPlan plan = std::move(exporter).Finish(std::move(config));
  NameLeftOut(state, has_optimizer, is_training, plan);
  if (is_training) NameWeights(source, plan);
  return plan;
}

}  // namespace shardshift::reshard
