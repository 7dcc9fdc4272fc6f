// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/checkpoint_state.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/convert.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

absl::StatusOr<json> ParseObject(const std::string& text, const char* what) {
  SS_RETURN_IF_ERROR(
      Annotate(CheckJsonDepth(text), absl::StrCat("checkpoint ", what)));
  json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) {
    return absl::DataLossError(
        absl::StrCat("checkpoint ", what, " is no JSON object"));
  }
  return parsed;
}

const json& Member(const json& object, const char* key) {
  static const json& missing = *new json();
  const auto it = object.find(key);
  return it == object.end() ? missing : *it;
}

// Of a copy of selected tensors the model has more than are stored.
constexpr int64_t kMaxTensorsNotStored = int64_t{1} << 18;

// A state may claim a model whose list of tensors alone would fill the memory.
absl::Status CheckNumTensors(const ckpt::Reader& reader,
                             const ModelConfig& model) {
  const int64_t claimed = NumLogicalTensors(model);
  const auto stored = std::ssize(reader.table().tensors);
  if (claimed <= stored + kMaxTensorsNotStored) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint state: model has ", claimed, " tensors, the checkpoint only ",
      stored, " with all roles; it is not the state of these tensors"));
}

absl::StatusOr<Layout> ReadLayout(const json& object,
                                  const ModelConfig& model) {
  SS_ASSIGN_OR_RETURN(const Layout layout, LayoutFromJson(object));
  const absl::Status valid = Validate(model, layout);
  if (valid.ok()) return layout;
  return absl::DataLossError(
      absl::StrCat("checkpoint record: layout: ", valid.message()));
}

bool HasRole(absl::string_view role, Content content) {
  return absl::c_any_of(RolesOf(content),
                        [role](const char* known) { return role == known; });
}

absl::Status Refuse(const ckpt::Reader& reader, const ckpt::Tensor& tensor,
                    absl::string_view problem) {
  return absl::FailedPreconditionError(absl::StrCat(
      reader.directory(), ": ", ckpt::Describe(tensor), " ", problem));
}

absl::Status CheckRole(const ckpt::Reader& reader, const LogicalTensor& tensor,
                       absl::string_view role) {
  ckpt::Tensor expected{.name = tensor.name,
                        .role = std::string(role),
                        .dtype = ckpt::DType::kF32,
                        .shape = tensor.shape};
  const absl::StatusOr<int64_t> index = reader.FindTensor(tensor.name, role);
  if (!index.ok()) {
    return Refuse(reader, expected,
                  "is missing; of a copy of some tensors, `reshard --select` "
                  "takes those that it has");
  }
  const ckpt::Tensor& found = reader.table().tensors[*index];
  if (HasRole(role, Content::kWeights) &&
      ckpt::CheckConversion(found.dtype, ckpt::DType::kF32).ok()) {
    expected.dtype = found.dtype;
  }
  if (found == expected) return absl::OkStatus();
  return Refuse(
      reader, found,
      absl::StrCat("is ", ckpt::Name(found.dtype), ckpt::ToString(found.shape),
                   ", the model has ", ckpt::Name(expected.dtype),
                   ckpt::ToString(tensor.shape)));
}

}  // namespace

absl::StatusOr<CheckpointState> ReadTexts(const ckpt::Reader& reader) {
  const auto read = [&reader]() -> absl::StatusOr<CheckpointState> {
    CheckpointState result;
    SS_ASSIGN_OR_RETURN(result.state, ParseObject(reader.state(), "state"));
    SS_ASSIGN_OR_RETURN(result.record, ParseObject(reader.record(), "record"));
    return result;
  };
  absl::StatusOr<CheckpointState> result = read();
  if (!result.ok()) return Annotate(result.status(), reader.directory());
  return result;
}

absl::StatusOr<CheckpointState> ReadState(const ckpt::Reader& reader) {
  SS_ASSIGN_OR_RETURN(CheckpointState texts, ReadTexts(reader));
  if (texts.state.contains("generic")) {
    return absl::FailedPreconditionError(
        absl::StrCat(reader.directory(),
                     " was made with --generic: it has no model, and only "
                     "`reshard --generic` takes it"));
  }
  const auto read = [&]() -> absl::StatusOr<CheckpointState> {
    CheckpointState result = std::move(texts);
    SS_ASSIGN_OR_RETURN(result.model,
                        ModelFromJson(Member(result.state, "model")));
    SS_RETURN_IF_ERROR(CheckNumTensors(reader, result.model));
    if (const json& layout = Member(result.record, "layout");
        !layout.is_null()) {
      SS_ASSIGN_OR_RETURN(result.layout, ReadLayout(layout, result.model));
    }
    return result;
  };
  absl::StatusOr<CheckpointState> result = read();
  if (!result.ok()) return Annotate(result.status(), reader.directory());
  return result;
}

std::optional<Layout> StoredLayout(const ckpt::Reader& reader) {
  const absl::StatusOr<CheckpointState> texts = ReadTexts(reader);
  if (!texts.ok()) return std::nullopt;
  const absl::StatusOr<Layout> layout =
      LayoutFromJson(Member(texts->record, "layout"));
  return layout.ok() ? std::optional(*layout) : std::nullopt;
}

std::string StateText(const json& json) { return json.dump(2); }

Content ContentOf(const ckpt::Reader& reader) {
  const auto& tensors = reader.table().tensors;
  const bool has_state = absl::c_any_of(tensors, [](const ckpt::Tensor& t) {
    return HasRole(t.role, Content::kTraining);
  });
  return has_state ? Content::kTraining : Content::kWeights;
}

absl::Status CheckStored(const ckpt::Reader& reader,
                         const std::vector<LogicalTensor>& tensors,
                         Content content) {
  for (const LogicalTensor& tensor : tensors) {
    for (const char* role : RolesOf(content)) {
      SS_RETURN_IF_ERROR(CheckRole(reader, tensor, role));
    }
    if (content == Content::kTraining && KeepsWeight(reader, tensor.name)) {
      SS_RETURN_IF_ERROR(CheckRole(reader, tensor, kWeightRoles[0]));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNothingElse(const ckpt::Reader& reader,
                              const std::vector<LogicalTensor>& tensors,
                              Content content) {
  absl::flat_hash_set<absl::string_view> known;
  for (const LogicalTensor& tensor : tensors) known.insert(tensor.name);
  for (const ckpt::Tensor& found : reader.table().tensors) {
    // Beside masters, which CheckStored wants, weights may be kept.
    const bool has_role =
        HasRole(found.role, content) || HasRole(found.role, Content::kWeights);
    if (!known.contains(found.name) || !has_role) {
      return Refuse(reader, found, "does not belong to the model");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> FindWeight(const ckpt::Reader& reader,
                                   absl::string_view name) {
  absl::StatusOr<int64_t> weight = reader.FindTensor(name, kWeightRoles[0]);
  if (weight.ok()) return weight;
  return reader.FindTensor(name, kOptimizerRoles[0]);
}

bool KeepsWeight(const ckpt::Reader& reader, absl::string_view name) {
  return reader.FindTensor(name, kWeightRoles[0]).ok() &&
         reader.FindTensor(name, kOptimizerRoles[0]).ok();
}

std::vector<std::string> KeptWeights(const ckpt::Reader& reader) {
  std::vector<std::string> names;
  for (const ckpt::Tensor& tensor : reader.table().tensors) {
    if (tensor.role == kWeightRoles[0] && KeepsWeight(reader, tensor.name)) {
      names.push_back(tensor.name);
    }
  }
  return names;
}

absl::StatusOr<WholeModel> ReadWholeModel(const ckpt::Reader& reader) {
  WholeModel model;
  SS_ASSIGN_OR_RETURN(model.state, ReadState(reader));
  model.tensors = LogicalTensors(model.state.model);
  model.content = ContentOf(reader);
  SS_RETURN_IF_ERROR(CheckStored(reader, model.tensors, model.content));
  SS_RETURN_IF_ERROR(CheckNothingElse(reader, model.tensors, model.content));
  return model;
}

absl::Status CheckTensors(const ckpt::Reader& reader,
                          const std::vector<LogicalTensor>& tensors) {
  if (ContentOf(reader) != Content::kTraining) {
    return absl::FailedPreconditionError(absl::StrCat(
        reader.directory(),
        " holds weights without optimizer state; a run goes on only from "
        "both, `train --finetune` starts one from weights"));
  }
  SS_RETURN_IF_ERROR(CheckStored(reader, tensors, Content::kTraining));
  return CheckNothingElse(reader, tensors, Content::kTraining);
}

}  // namespace shardshift::reshard
