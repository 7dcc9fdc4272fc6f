// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/megatron_module.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/megatron_names.h"

namespace shardshift::reshard {
namespace {

using ByName = absl::flat_hash_map<std::string, const Parameter*>;

// A chunk numbers its layers, and a rank its experts, from 0 on.
std::vector<ParameterName> LocalNames(
    const std::vector<const Parameter*>& parameters) {
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
  for (ParameterName& name : names) {
    if (name.layer >= 0) name.layer -= first_layer;
    if (name.expert >= 0) name.expert -= first_expert;
  }
  return names;
}

ByName IndexByName(const std::vector<const Parameter*>& parameters) {
  const std::vector<ParameterName> names = LocalNames(parameters);
  ByName by_name;
  for (size_t i = 0; i < names.size(); ++i) {
    for (std::string& name : MegatronNames(names[i])) {
      by_name.emplace(std::move(name), parameters[i]);
    }
  }
  return by_name;
}

// Sorts parameters, which are in the order of the model, as a module of the
// style registers them.
std::pair<int64_t, int> RegistrationOf(const ParameterName& name,
                                       const LayerStyle& style) {
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  enum { kAttentionNorm, kDense, kExperts, kSecondOfExperts, kSharedExperts };
  if (name.layer < 0) {
    return {absl::StartsWith(name.rest, "embedding.") ? -1 : kLast, kDense};
  }
  if (!style.fuses_norms && absl::StartsWith(name.rest, "attention_norm.")) {
    return {name.layer, kAttentionNorm};
  }
  if (absl::StartsWith(name.rest, "mlp.shared_experts.")) {
    return {name.layer, kSharedExperts};
  }
  if (name.expert < 0) return {name.layer, kDense};
  const bool is_second =
      style.groups_experts && absl::StartsWith(name.rest, "mlp.experts.fc2.");
  return {name.layer, is_second ? kSecondOfExperts : kExperts};
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
  const ByName by_name = IndexByName(parameters);
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
                     const LayerStyle& style) {
  std::vector<const Parameter*> all;
  all.reserve(parameters.size());
  for (const Parameter& parameter : parameters) all.push_back(&parameter);
  std::vector<ParameterName> names = LocalNames(all);
  const bool is_moe =
      std::any_of(names.begin(), names.end(), [](const ParameterName& name) {
        return absl::StartsWith(name.rest, "mlp.router.");
      });
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return RegistrationOf(names[a], style) < RegistrationOf(names[b], style);
  });
  Module module;
  for (const size_t i : order) {
    ModuleParameter added;
    added.name = MegatronName(names[i], style, is_moe);
    added.parameter = all[i];
    added.is_expert = names[i].expert >= 0;
    module.parameters.push_back(std::move(added));
  }
  return module;
}

bool Decays(const ModuleParameter& parameter) {
  return parameter.parameter->shape.size() > 1 &&
         !absl::EndsWith(parameter.name, ".bias");
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
