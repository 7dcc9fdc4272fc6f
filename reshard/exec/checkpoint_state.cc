// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/checkpoint_state.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/layout/rank_state.h"

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

// A state may claim a model whose list of tensors alone would fill the memory.
absl::Status CheckNumTensors(const ckpt::Reader& reader,
                             const ModelConfig& model) {
  const int64_t claimed = NumLogicalTensors(model);
  const auto stored = std::ssize(reader.table().tensors);
  if (claimed <= stored) return absl::OkStatus();
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

}  // namespace

absl::Status CheckJsonDepth(absl::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      in_string = !in_string;
    } else if (in_string) {
      if (c == '\\') ++i;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) {
        return absl::InvalidArgumentError(absl::StrCat(
            "JSON nests deeper than ", kMaxJsonDepth, " at byte ", i));
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointState> ReadState(const ckpt::Reader& reader) {
  const auto read = [&reader]() -> absl::StatusOr<CheckpointState> {
    CheckpointState result;
    SS_ASSIGN_OR_RETURN(result.state, ParseObject(reader.state(), "state"));
    SS_ASSIGN_OR_RETURN(result.record, ParseObject(reader.record(), "record"));
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

std::string StateText(const json& json) { return json.dump(2); }

absl::Status CheckTensors(const ckpt::Reader& reader,
                          const std::vector<LogicalTensor>& tensors) {
  const auto refuse = [&reader](const ckpt::Tensor& tensor,
                                const std::string& problem) {
    return absl::FailedPreconditionError(absl::StrCat(
        reader.directory(), ": ", ckpt::Describe(tensor), " ", problem));
  };
  for (const LogicalTensor& tensor : tensors) {
    for (const char* role : kOptimizerRoles) {
      const ckpt::Tensor expected{.name = tensor.name,
                                  .role = role,
                                  .dtype = ckpt::DType::kF32,
                                  .shape = tensor.shape};
      const absl::StatusOr<int64_t> index =
          reader.FindTensor(tensor.name, role);
      if (!index.ok()) return refuse(expected, "is missing");
      const ckpt::Tensor& found = reader.table().tensors[*index];
      if (found != expected) {
        return refuse(found, absl::StrCat("is ", ckpt::Name(found.dtype),
                                          ckpt::ToString(found.shape),
                                          ", the model has F32",
                                          ckpt::ToString(tensor.shape)));
      }
    }
  }
  const auto& found = reader.table().tensors;
  if (found.size() == tensors.size() * kOptimizerRoles.size()) {
    return absl::OkStatus();
  }
  absl::flat_hash_map<std::string, int> known;
  for (const LogicalTensor& tensor : tensors) known[tensor.name] = 1;
  const auto unknown =
      std::find_if(found.begin(), found.end(), [&](const ckpt::Tensor& t) {
        return !known.contains(t.name) ||
               std::find(kOptimizerRoles.begin(), kOptimizerRoles.end(),
                         absl::string_view(t.role)) == kOptimizerRoles.end();
      });
  return refuse(*unknown, "does not belong to the model");
}

}  // namespace shardshift::reshard
