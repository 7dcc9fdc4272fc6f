// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/hf_target.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/convert.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/hf_config.h"
#include "reshard/formats/torch_dtype.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

absl::StatusOr<std::string> TorchDType(ckpt::DType dtype) {
  switch (dtype) {
    case ckpt::DType::kF32:
    case ckpt::DType::kF64:
    case ckpt::DType::kF16:
    case ckpt::DType::kBF16:
      return std::string(TorchName(dtype));
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("transformers loads no weights of dtype ",
                       ckpt::Name(dtype), "; choose F32, F16 or BF16"));
  }
}

// What the state says of the folder it came from.
absl::StatusOr<HfTarget> OriginOf(const CheckpointState& state) {
  HfTarget origin;
  const auto found = state.state.find("huggingface");
  if (found != state.state.end() && found->is_object()) {
    if (const auto it = found->find("config");
        it != found->end() && it->is_string()) {
      origin.config = it->get<std::string>();
    }
    if (const auto it = found->find("naming");
        it != found->end() && it->is_object()) {
      origin.naming.fused_experts = it->value("fused_experts", false);
      origin.naming.bare = it->value("bare", false);
    }
  }
  if (!origin.config.has_value()) {
    SS_ASSIGN_OR_RETURN(origin.naming.family, FamilyFor(state.model));
    return origin;
  }
  SS_ASSIGN_OR_RETURN(const HfConfig config, ParseHfConfig(*origin.config));
  ModelConfig described = config.model;
  described.padded_vocab_size = state.model.padded_vocab_size;
  if (described != state.model) {
    return absl::FailedPreconditionError(
        "the config.json in the state describes another model than the state "
        "itself");
  }
  origin.naming.family = config.family;
  return origin;
}

}  // namespace

absl::StatusOr<HfTarget> PlanHfTarget(const CheckpointState& state,
                                      HfForm form) {
  SS_ASSIGN_OR_RETURN(HfTarget target, OriginOf(state));
  if (form == HfForm::kModules) {
    target.naming.bare = false;
    target.naming.fused_experts = state.model.has_experts();
  }
  SS_ASSIGN_OR_RETURN(target.stored, HfTensors(state.model, target.naming));
  return target;
}

absl::StatusOr<std::vector<ckpt::DType>> AddHfWeights(
    const ckpt::Reader& source, Content content,
    const std::vector<LogicalTensor>& tensors, const HfTarget& target,
    std::optional<ckpt::DType> dtype, ExportPlan& plan) {
  std::vector<ckpt::DType> dtypes;
  dtypes.reserve(tensors.size());
  for (const LogicalTensor& tensor : tensors) {
    SS_ASSIGN_OR_RETURN(const int64_t index, FindWeight(source, tensor.name));
    plan.tensors.push_back({index, tensor.name, kWeightRoles[0]});
    const ckpt::DType found = source.table().tensors[index].dtype;
    // All alike, though some weights be kept beside masters.
    const ckpt::DType stored =
        content == Content::kTraining ? ckpt::DType::kF32 : found;
    dtypes.push_back(dtype.value_or(stored));
    SS_RETURN_IF_ERROR(
        Annotate(ckpt::CheckConversion(found, dtypes.back()), tensor.name));
  }
  std::vector<ckpt::DType> of_stored;
  of_stored.reserve(target.stored.size());
  for (const StoredTensor& tensor : target.stored) {
    of_stored.push_back(dtypes[tensor.pieces.front().tensor]);
    for (const Piece& piece : tensor.pieces) {
      if (dtypes[piece.tensor] == of_stored.back()) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          tensor.name, " would be of two dtypes, ",
          ckpt::Name(of_stored.back()), " and ",
          ckpt::Name(dtypes[piece.tensor]), "; choose one with --dtype"));
    }
  }
  return of_stored;
}

absl::StatusOr<std::string> HfConfigText(const HfTarget& target,
                                         const ModelConfig& model,
                                         ckpt::DType weights) {
  SS_ASSIGN_OR_RETURN(const std::string dtype, TorchDType(weights));
  if (!target.config.has_value()) {
    SS_ASSIGN_OR_RETURN(const json made,
                        HfConfigFor(model, target.naming.family, dtype));
    return absl::StrCat(made.dump(2), "\n");
  }
  nlohmann::ordered_json config = nlohmann::ordered_json::parse(*target.config);
  bool changed = false;
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (!config.contains(key) || config[key] == dtype) continue;
    config[key] = dtype;
    changed = true;
  }
  return changed ? absl::StrCat(config.dump(2), "\n") : *target.config;
}

}  // namespace shardshift::reshard
