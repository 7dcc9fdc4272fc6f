// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/megatron_module.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/megatron_names.h"

namespace shardshift::reshard {
namespace {

// A chunk numbers its layers, and a rank its experts, from 0 on.
using ByName = absl::flat_hash_map<std::string, const Parameter*>;

ByName LocalNames(const std::vector<const Parameter*>& parameters) {
  std::vector<ParameterName> names;
  names.reserve(parameters.size());
  int64_t first_layer = std::numeric_limits<int64_t>::max();
  int64_t first_expert = std::numeric_limits<int64_t>::max();
  for (const Parameter* parameter : parameters) {
    names.push_back(TakeApart(parameter->name));
    const ParameterName& name = names.back();
    if (name.layer >= 0) first_layer = std::min(first_layer, name.layer);
    if (name.expert >= 0) first_expert = std::min(first_expert, name.expert);
  }
  ByName by_name;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].layer >= 0) names[i].layer -= first_layer;
    if (names[i].expert >= 0) names[i].expert -= first_expert;
    for (std::string& name : MegatronNames(names[i])) {
      by_name.emplace(std::move(name), parameters[i]);
    }
  }
  return by_name;
}

absl::Status CheckTensor(const TorchFile& file, const std::string& name,
                         const TorchTensor& tensor,
                         const Parameter& parameter) {
  const auto refuse = [&](absl::string_view problem) {
    return absl::DataLossError(
        absl::StrCat(file.path(), ": ", name, " ", problem));
  };
  if (tensor.shape != parameter.shape) {
    return refuse(absl::StrCat("has shape ", ckpt::ToString(tensor.shape),
                               ", by the arguments it has ",
                               ckpt::ToString(parameter.shape)));
  }
  if (!tensor.IsDense()) {
    return refuse(absl::StrCat("lies with strides ",
                               ckpt::ToString(tensor.strides),
                               ", expected it dense"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Module> ReadModule(
    const TorchFile& file, const PickleValue& module,
    const std::vector<const Parameter*>& parameters) {
  const ByName by_name = LocalNames(parameters);
  absl::flat_hash_set<const Parameter*> found;
  Module result;
  SS_ASSIGN_OR_RETURN(const auto entries, module.AsEntries());
  for (const auto& [key, value] : entries) {
    SS_ASSIGN_OR_RETURN(const absl::string_view text, key.AsString());
    std::string name(text);
    const auto known = by_name.find(name);
    if (known == by_name.end()) {
      // What Transformer Engine keeps beside its weights.
      if (absl::EndsWith(name, "._extra_state") ||
          !TorchFile::IsTensor(value)) {
        result.ignored.push_back(std::move(name));
        continue;
      }
      return absl::DataLossError(
          absl::StrCat(file.path(), ": ", name,
                       " is no parameter of the model that the "
                       "arguments describe"));
    }
    absl::StatusOr<TorchTensor> tensor = file.Tensor(value);
    SS_RETURN_IF_ERROR(tensor.status());
    SS_RETURN_IF_ERROR(CheckTensor(file, name, *tensor, *known->second));
    if (!found.insert(known->second).second) {
      return absl::DataLossError(absl::StrCat(
          file.path(), ": ", name, " is there under another name, too"));
    }
    const bool is_expert = TakeApart(known->second->name).expert >= 0;
    result.parameters.push_back(
        {std::move(name), *std::move(tensor), known->second, is_expert});
  }
  for (const Parameter* parameter : parameters) {
    if (found.contains(parameter)) continue;
    return absl::DataLossError(
        absl::StrCat(file.path(), ": ", parameter->name,
                     " is missing, which Megatron calls ",
                     MegatronNames(TakeApart(parameter->name)).front()));
  }
  return result;
}

bool IsTold(const ModuleParameter& parameter, bool is_first_tensor_rank,
            bool is_first_expert_rank) {
  const bool is_replica =
      parameter.parameter->split == Split::kReplicated && !is_first_tensor_rank;
  return !is_replica && (is_first_expert_rank || parameter.is_expert);
}

Module ModuleInOrder(const std::vector<Parameter>& parameters,
                     bool fuses_norms) {
  Module module;
  size_t first_of_layer = 0;
  int64_t layer = -1;
  for (const Parameter& parameter : parameters) {
    const ParameterName name = TakeApart(parameter.name);
    ModuleParameter added;
    added.name = parameter.name;
    added.parameter = &parameter;
    added.is_expert = name.expert >= 0;
    if (name.layer != layer) {
      layer = name.layer;
      first_of_layer = module.parameters.size();
    }
    const bool is_first =
        !fuses_norms && absl::StartsWith(name.rest, "attention_norm.");
    if (!is_first) {
      module.parameters.push_back(std::move(added));
      continue;
    }
    module.parameters.insert(
        module.parameters.begin() + static_cast<ptrdiff_t>(first_of_layer++),
        std::move(added));
  }
  return module;
}

std::vector<const ModuleParameter*> ParametersOfBuffer(const Module& module,
                                                       const Layout& layout,
                                                       bool experts) {
  const bool separates = layout.separates_experts();
  std::vector<const ModuleParameter*> parameters;
  for (const ModuleParameter& p : module.parameters) {
    if ((separates && p.is_expert) == experts) parameters.push_back(&p);
  }
  return parameters;
}

}  // namespace shardshift::reshard
