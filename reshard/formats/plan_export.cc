// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/plan_export.h"

#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/generic_plan.h"
#include "reshard/formats/dcp_export.h"
#include "reshard/formats/dcp_model_export.h"
#include "reshard/formats/generic.h"
#include "reshard/formats/hf_export.h"
#include "reshard/formats/megatron_legacy_export.h"
#include "reshard/formats/safetensors_files.h"
#include "reshard/formats/torch_dist_export.h"

namespace shardshift::reshard {
namespace {

// Every tensor as it is.
absl::StatusOr<ExportPlan> PlanGeneric(const ckpt::Reader& source,
                                       const ExportChoice& choice) {
  SS_ASSIGN_OR_RETURN(const CopyPlan copies,
                      PlanGenericCopy(source, 1, choice.choice));
  ExportPlan plan;
  std::vector<SafetensorsEntry> entries;
  std::vector<LogicalTensor> tensors;
  for (const TensorCopy& copy : copies.tensors) {
    const ckpt::Tensor& tensor = source.table().tensors[copy.source];
    const ckpt::FragmentSpec& spec =
        copies.parts[0].specs[copy.targets[0].spec];
    SafetensorsEntry entry;
    entry.stored.name = KeyOfName({tensor.name, spec.role});
    entry.stored.shape = tensor.shape;
    entry.stored.pieces.push_back(
        {std::ssize(tensors), ckpt::WholeBox(tensor.shape), 0});
    entry.dtype = spec.dtype;
    entry.role = spec.role;
    entries.push_back(std::move(entry));
    tensors.push_back({tensor.name, tensor.shape});
    plan.tensors.push_back({copy.source, tensor.name, spec.role});
  }
  SS_RETURN_IF_ERROR(AddShards(entries, tensors, choice, plan));
  SS_ASSIGN_OR_RETURN(const CheckpointState texts, ReadTexts(source));
  NameState(texts.state, {}, plan.left_out);
  return plan;
}

}  // namespace

void NameState(const nlohmann::json& state,
               std::initializer_list<absl::string_view> kept,
               std::vector<std::string>& left_out) {
  for (const auto& [key, value] : state.items()) {
    if (absl::c_linear_search(kept, key)) continue;
    left_out.push_back(absl::StrCat("state: ", key));
  }
}

absl::StatusOr<ExportPlan> PlanExport(const OpenedSource& source, Format to,
                                      const ExportChoice& choice) {
  const FormatInfo& info = InfoOf(to);
  if (choice.generic ? !info.writes_generic : !info.writes_models) {
    const bool can_other = info.writes_generic && !choice.generic;
    const char* hint = "; `reshard formats` lists what can";
    if (can_other) {
      hint = " as a model yet; with --generic every tensor keeps its name";
    } else if (choice.generic && info.writes_models) {
      hint = " with --generic, only as a model; leave --generic out";
    }
    return absl::UnimplementedError(
        absl::StrCat("--to ", info.name, " cannot be written", hint));
  }
  if (to == Format::kMegatron) {
    return PlanMegatronLegacyExport(*source.reader, choice);
  }
  if (to == Format::kTorchDist) {
    return PlanTorchDistExport(*source.reader, choice);
  }
  if (to == Format::kDcp) {
    return choice.generic ? PlanDcpExport(*source.reader, choice)
                          : PlanDcpModelExport(*source.reader, choice);
  }
  return choice.generic ? PlanGeneric(*source.reader, choice)
                        : PlanHfExport(*source.reader, choice);
}

}  // namespace shardshift::reshard
