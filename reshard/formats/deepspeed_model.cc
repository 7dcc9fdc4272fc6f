// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/deepspeed_model.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/formats/common_values.h"
#include "reshard/formats/deepspeed_values.h"
#include "reshard/formats/generic.h"
#include "reshard/layout/content.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

// Of the model's file, what says something of the run, under our names of it.
constexpr std::array<const char*, 6> kFacts = {
    "ds_version",    "dp_world_size",  "mp_world_size",
    "skipped_steps", "global_samples", "global_steps"};
constexpr std::array<const char*, 10> kKnown = {
    "module",
    "optimizer",
    "param_shapes",
    "frozen_param_shapes",
    "frozen_param_fragments",
    "shared_params",
    "buffer_names",
    "lr_scheduler",
    "checkpoint_parallel_dimensions",
    "universal_checkpoint_info"};

class ModelReader {
 public:
  explicit ModelReader(const OpenedTorch& source) : source_(source) {}

  absl::StatusOr<DeepSpeedModel> Read() {
    model_.path = source_.torch.path();
    const absl::Status status = ReadAll();
    if (!status.ok()) return Annotate(status, model_.path);
    return std::move(model_);
  }

 private:
  absl::Status ReadAll() {
    SS_ASSIGN_OR_RETURN(const auto module, Present("module"));
    if (module.has_value()) {
      SS_ASSIGN_OR_RETURN(model_.module, Tensors(*module, "module"));
    }
    SS_RETURN_IF_ERROR(ReadShapes());
    SS_RETURN_IF_ERROR(ReadDegrees());
    SS_ASSIGN_OR_RETURN(const auto frozen, Present("frozen_param_shapes"));
    if (frozen.has_value()) {
      SS_ASSIGN_OR_RETURN(model_.frozen, Shapes(*frozen));
    }
    SS_ASSIGN_OR_RETURN(const auto fragments,
                        Present("frozen_param_fragments"));
    if (fragments.has_value()) {
      SS_ASSIGN_OR_RETURN(model_.frozen_fragments,
                          Tensors(*fragments, "frozen_param_fragments"));
    }
    SS_RETURN_IF_ERROR(ReadNames());
    SS_ASSIGN_OR_RETURN(const PickleValue steps,
                        source_.torch.root().Get("global_steps"));
    SS_ASSIGN_OR_RETURN(model_.global_steps, steps.AsInt());
    if (model_.global_steps < 0) return steps.Wrong("a count of steps");
    return ReadFacts();
  }

  // The entry if it is there and no None.
  absl::StatusOr<std::optional<PickleValue>> Present(absl::string_view key) {
    SS_ASSIGN_OR_RETURN(std::optional<PickleValue> value,
                        source_.torch.root().Find(key));
    if (value.has_value() && value->IsNone()) value.reset();
    return value;
  }

  absl::StatusOr<std::vector<ShapedName>> Shapes(const PickleValue& dict) {
    SS_ASSIGN_OR_RETURN(const auto entries, dict.AsEntries());
    std::vector<ShapedName> shapes;
    shapes.reserve(entries.size());
    for (const auto& [key, value] : entries) {
      ShapedName shaped;
      SS_ASSIGN_OR_RETURN(const absl::string_view name, key.AsString());
      shaped.name = std::string(name);
      SS_ASSIGN_OR_RETURN(shaped.shape, AsShape(value));
      SS_ASSIGN_OR_RETURN(shaped.num_elements,
                          ckpt::CheckedNumElements(shaped.shape));
      shapes.push_back(std::move(shaped));
    }
    return shapes;
  }

  absl::StatusOr<std::vector<NamedTensor>> Tensors(const PickleValue& dict,
                                                   absl::string_view what) {
    return ReadNamedTensors(source_, dict, what, model_.left_out);
  }

  absl::Status ReadDegrees() {
    SS_ASSIGN_OR_RETURN(const auto value,
                        Present("checkpoint_parallel_dimensions"));
    if (!value.has_value()) return absl::OkStatus();
    DeepSpeedDegrees& degrees = model_.degrees.emplace();
    for (const auto& [key, degree] :
         {std::pair("pp_degree", &degrees.pipeline),
          std::pair("tp_degree", &degrees.tensor)}) {
      SS_ASSIGN_OR_RETURN(const PickleValue number, value->Get(key));
      SS_ASSIGN_OR_RETURN(*degree, number.AsInt());
      if (*degree < 1) return number.Wrong("a number of ranks");
    }
    return absl::OkStatus();
  }

  absl::Status ReadShapes() {
    SS_ASSIGN_OR_RETURN(const auto value, Present("param_shapes"));
    if (!value.has_value()) return absl::OkStatus();
    SS_ASSIGN_OR_RETURN(const auto groups, value->AsList());
    model_.param_shapes.emplace();
    model_.param_shapes->reserve(groups.size());
    for (const PickleValue& group : groups) {
      SS_ASSIGN_OR_RETURN(std::vector<ShapedName> shapes, Shapes(group));
      model_.param_shapes->push_back(std::move(shapes));
    }
    return absl::OkStatus();
  }

  absl::Status ReadNames() {
    SS_ASSIGN_OR_RETURN(const auto shared, Present("shared_params"));
    if (shared.has_value()) {
      SS_ASSIGN_OR_RETURN(const auto entries, shared->AsEntries());
      for (const auto& [key, value] : entries) {
        SS_ASSIGN_OR_RETURN(const absl::string_view alias, key.AsString());
        SS_ASSIGN_OR_RETURN(const absl::string_view name, value.AsString());
        model_.shared.emplace(alias, name);
      }
    }
    SS_ASSIGN_OR_RETURN(const auto buffers, Present("buffer_names"));
    if (!buffers.has_value()) return absl::OkStatus();
    SS_ASSIGN_OR_RETURN(const auto names, buffers->AsList());
    model_.buffers.reserve(names.size());
    for (const PickleValue& value : names) {
      SS_ASSIGN_OR_RETURN(const absl::string_view name, value.AsString());
      model_.buffers.emplace_back(name);
    }
    return absl::OkStatus();
  }

  absl::Status ReadFacts() {
    const PickleValue root = source_.torch.root();
    SS_ASSIGN_OR_RETURN(const json scalars, ScalarsOf(root));
    for (const char* key : kFacts) {
      if (scalars.contains(key)) model_.facts[key] = scalars[key];
    }
    SS_ASSIGN_OR_RETURN(const auto scheduler, Present("lr_scheduler"));
    if (scheduler.has_value() && scheduler->IsMapping()) {
      SS_ASSIGN_OR_RETURN(model_.facts["lr_scheduler"], ScalarsOf(*scheduler));
    }
    SS_ASSIGN_OR_RETURN(const auto entries, root.AsEntries());
    for (const auto& [key, value] : entries) {
      if (key.kind() != PickleKind::kString || value.IsNone()) continue;
      const std::string name(*key.AsString());
      if (std::find(kFacts.begin(), kFacts.end(), name) == kFacts.end() &&
          std::find(kKnown.begin(), kKnown.end(), name) == kKnown.end()) {
        model_.left_out.push_back(absl::StrCat("entry ", name));
      }
    }
    return absl::OkStatus();
  }

  const OpenedTorch& source_;
  DeepSpeedModel model_;
};

// Gives the weights that lie beside masters last.
std::pair<SourceTensors, SourceTensors> TakeWeightsApart(
    const SourceTensors& all) {
  absl::flat_hash_set<std::string> with_master;
  for (const SourceTensor& tensor : all.tensors) {
    GenericName name = NameOfKey(tensor.key);
    if (name.role == kOptimizerRoles[0]) {
      with_master.insert(std::move(name.tensor));
    }
  }
  std::pair<SourceTensors, SourceTensors> parts;
  parts.first.files = parts.second.files = all.files;
  for (const SourceTensor& tensor : all.tensors) {
    const GenericName name = NameOfKey(tensor.key);
    const bool is_apart =
        name.role == kWeightRoles[0] && with_master.contains(name.tensor);
    (is_apart ? parts.second : parts.first).tensors.push_back(tensor);
  }
  return parts;
}

}  // namespace

absl::StatusOr<DeepSpeedModel> ReadDeepSpeedModel(const OpenedTorch& source) {
  return ModelReader(source).Read();
}

absl::StatusOr<std::vector<NamedTensor>> ReadNamedTensors(
    const OpenedTorch& source, const PickleValue& mapping,
    absl::string_view what, std::vector<std::string>& left_out) {
  SS_ASSIGN_OR_RETURN(const auto entries, mapping.AsEntries());
  std::vector<NamedTensor> tensors;
  tensors.reserve(entries.size());
  for (const auto& [key, value] : entries) {
    NamedTensor named;
    SS_ASSIGN_OR_RETURN(const absl::string_view name, key.AsString());
    named.name = std::string(name);
    if (!TorchFile::IsTensor(value)) {
      if (!value.IsNone()) {
        left_out.push_back(absl::StrCat(what, ".", named.name));
      }
      continue;
    }
    SS_ASSIGN_OR_RETURN(named.tensor, source.torch.Tensor(value));
    tensors.push_back(std::move(named));
  }
  return tensors;
}

std::map<std::string, std::string> AliasesOf(const DeepSpeedModel& model) {
  std::map<std::string, std::string> aliases = model.shared;
  std::map<std::tuple<std::string, int64_t, ckpt::Shape, ckpt::Shape>,
           std::string>
      views;
  for (const NamedTensor& named : model.module) {
    const TorchTensor& t = named.tensor;
    if (ckpt::NumElements(t.shape) == 0 || aliases.contains(named.name)) {
      continue;
    }
    const auto [it, is_new] = views.try_emplace(
        {t.storage_key, t.offset_bytes, t.shape, t.strides}, named.name);
    if (!is_new) aliases.emplace(named.name, it->second);
  }
  return aliases;
}

absl::Status AddWeights(const DeepSpeedModel& model,
                        const absl::flat_hash_set<std::string>& done,
                        int64_t file, DeepSpeedContents& contents) {
  std::map<std::string, std::string> aliases = AliasesOf(model);
  absl::flat_hash_set<std::string> known = done;
  for (const auto& [alias, source] : aliases) known.insert(alias);
  contents.aliases.merge(aliases);
  for (const auto* tensors : {&model.module, &model.frozen_fragments}) {
    for (const NamedTensor& named : *tensors) {
      if (!known.insert(named.name).second) continue;
      SS_RETURN_IF_ERROR(Annotate(
          contents.tensors.AddWhole(named.name, "weight", named.tensor, file),
          model.path));
    }
  }
  for (const ShapedName& frozen : model.frozen) {
    if (known.contains(frozen.name)) continue;
    return absl::DataLossError(absl::StrCat(
        model.path, " has no values of the frozen parameter ", frozen.name));
  }
  return absl::OkStatus();
}

absl::StatusOr<ForeignCheckpoint> Finish(const std::string& path,
                                         absl::string_view format,
                                         const DeepSpeedModel& model,
                                         DeepSpeedContents contents) {
  ForeignCheckpoint result;
  result.notes = std::move(contents.notes);
  result.left_out = std::move(contents.left_out);
  for (const std::string& entry : model.left_out) {
    result.left_out.push_back(absl::StrCat(entry, " of the model's file"));
  }
  json shared = json::object();
  contents.aliases.merge(AliasesOf(model));
  for (const auto& [alias, source] : contents.aliases) {
    shared[alias] = source;
    result.left_out.push_back(absl::StrCat(alias, ", which is ", source));
  }
  json generic = std::move(contents.generic);
  generic["format"] = format;
  generic["run"] = model.facts;
  generic["shared"] = std::move(shared);
  json progress = {{"step", model.global_steps}};
  if (model.facts.contains("global_samples")) {
    progress["consumed_samples"] = model.facts["global_samples"];
  }
  const json state = {{"generic", std::move(generic)},
                      {"progress", std::move(progress)}};
  auto [tensors, weights] = TakeWeightsApart(contents.tensors.tensors());
  SS_ASSIGN_OR_RETURN(
      result.files,
      GenericFiles(path, tensors, model.global_steps, StateText(state), "{}"));
  if (!weights.tensors.empty()) {
    SS_ASSIGN_OR_RETURN(result.weights,
                        GenericFiles(path, weights, 0, "{}", "{}"));
  }
  result.checks = contents.tensors.tensors().checks;
  // Once it is known that no two fragments overlap.
  SS_ASSIGN_OR_RETURN(result.replicas, contents.tensors.Replicas());
  result.replicas.insert(result.replicas.end(), contents.replicas.begin(),
                         contents.replicas.end());
  return result;
}

}  // namespace shardshift::reshard
