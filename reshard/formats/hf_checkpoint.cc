// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/hf_checkpoint.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/formats/generic.h"
#include "reshard/formats/hf_config.h"
#include "reshard/formats/hf_index.h"
#include "reshard/formats/hf_model.h"
#include "reshard/formats/safetensors_files.h"

namespace shardshift::reshard {
namespace {

SourceTensors SourceOf(const HfFolder& folder) {
  SourceTensors source;
  for (const HfFile& file : folder.files) {
    source.files.push_back(
        {ckpt::JoinPath(folder.directory, file.name), file.num_bytes});
  }
  for (const HfTensor& found : folder.tensors) {
    SourceTensor tensor;
    tensor.key = found.tensor.name;
    tensor.dtype = found.tensor.dtype;
    tensor.shape = found.tensor.shape;
    tensor.chunks.push_back(
        {ckpt::WholeBox(tensor.shape), found.file, found.tensor.begin, 0});
    source.tensors.push_back(std::move(tensor));
  }
  return source;
}

// Files of the folder that have no place in a checkpoint, such as tokenizers.
absl::StatusOr<std::vector<std::string>> OtherFiles(const HfFolder& folder) {
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ckpt::ListDirectory(folder.directory));
  std::vector<std::string> others;
  for (const std::string& name : names) {
    const bool is_weights =
        std::any_of(folder.files.begin(), folder.files.end(),
                    [&name](const HfFile& file) { return file.name == name; });
    if (is_weights || name == kHfConfigName || name == kHfIndexName) continue;
    others.push_back(absl::StrCat("file ", name));
  }
  return others;
}

absl::StatusOr<ForeignCheckpoint> ReadModel(const HfFolder& folder,
                                            const SourceTensors& source) {
  SS_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                      ReadHfConfigText(folder.directory));
  if (!text.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(
        folder.directory,
        " has no config.json, which tells what the model is; "
        "`reshard --generic` takes the tensors under their own names"));
  }
  absl::StatusOr<HfConfig> config = ParseHfConfig(*text);
  if (!config.ok()) {
    return Annotate(config.status(),
                    ckpt::JoinPath(folder.directory, kHfConfigName));
  }
  SS_ASSIGN_OR_RETURN(const HfModel model,
                      FindHfModel(folder.directory, *config, *text, source));
  ckpt::ForeignFilesBuilder builder(folder.directory);
  AddFiles(source, builder);
  SS_RETURN_IF_ERROR(
      AddHfTensors(model, source, model.match.found, "weight", builder));
  ForeignCheckpoint result;
  SS_ASSIGN_OR_RETURN(result.files,
                      builder.Build(/*step=*/0, StateText(HfState(model)),
                                    R"({"format": "safetensors"})"));
  for (const int64_t ignored : model.match.ignored) {
    result.left_out.push_back(
        absl::StrCat("buffer ", source.tensors[ignored].key));
  }
  return result;
}

absl::StatusOr<ForeignCheckpoint> ReadGeneric(const std::string& path,
                                              const SourceTensors& source) {
  const nlohmann::json state = {{"generic", {{"format", "safetensors"}}}};
  ForeignCheckpoint result;
  SS_ASSIGN_OR_RETURN(result.files,
                      GenericFiles(path, source, /*step=*/0, StateText(state),
                                   R"({"format": "safetensors"})"));
  return result;
}

}  // namespace

absl::StatusOr<ForeignCheckpoint> ReadHuggingFace(const std::string& path,
                                                  bool generic) {
  SS_ASSIGN_OR_RETURN(const bool is_directory,
                      ckpt::Exists(ckpt::JoinPath(path, ".")));
  if (!is_directory) {
    if (!generic) {
      return absl::FailedPreconditionError(absl::StrCat(
          path,
          " is one file; name its folder, whose config.json tells what "
          "the model is, or take it with `reshard --generic`"));
    }
    SourceTensors source;
    SS_RETURN_IF_ERROR(AddSafetensorsFile(path, source));
    return ReadGeneric(path, source);
  }
  SS_ASSIGN_OR_RETURN(const HfFolder folder, ReadHfFolder(path));
  const SourceTensors source = SourceOf(folder);
  SS_ASSIGN_OR_RETURN(
      ForeignCheckpoint result,
      generic ? ReadGeneric(path, source) : ReadModel(folder, source));
  SS_ASSIGN_OR_RETURN(std::vector<std::string> others, OtherFiles(folder));
  for (const std::string& unlisted : folder.unlisted) {
    others.push_back(
        absl::StrCat("tensor that the index does not list: ", unlisted));
  }
  result.left_out.insert(result.left_out.end(), others.begin(), others.end());
  return result;
}

}  // namespace shardshift::reshard
