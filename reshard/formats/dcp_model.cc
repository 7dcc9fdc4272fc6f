// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/dcp_model.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/formats/dcp_checkpoint.h"
#include "reshard/formats/dcp_keys.h"
#include "reshard/formats/hf_config.h"
#include "reshard/formats/hf_index.h"
#include "reshard/formats/hf_model.h"
#include "reshard/formats/megatron_steps.h"
#include "reshard/layout/content.h"
#include "reshard/layout/json_text.h"

namespace shardshift::reshard {
namespace {

constexpr absl::string_view kGroups = "param_groups.";
constexpr absl::string_view kStep = ".step";
constexpr size_t kMaxStepBytes = 8;

struct Config {
  std::string text;
  HfConfig config;
};

// In the directory, or beside it.
absl::StatusOr<Config> ReadConfig(const std::string& directory) {
  for (const std::string& folder :
       {directory, ckpt::JoinPath(directory, "..")}) {
    SS_ASSIGN_OR_RETURN(std::optional<std::string> text,
                        ReadHfConfigText(folder));
    if (!text.has_value()) continue;
    absl::StatusOr<HfConfig> config = ParseHfConfig(*text);
    if (!config.ok()) {
      return Annotate(config.status(), ckpt::JoinPath(folder, kHfConfigName));
    }
    return Config{*std::move(text), *std::move(config)};
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "neither ", directory, " nor the folder it is in has a ", kHfConfigName,
      ", which tells what the model is: put that of the Hugging Face model "
      "there; or `reshard --generic` takes the tensors under their own names"));
}

class ModelReader {
 public:
  ModelReader(std::string directory, DcpContents contents, DcpKeys keys)
      : directory_(std::move(directory)),
        contents_(std::move(contents)),
        keys_(std::move(keys)),
        builder_(directory_) {}

  absl::StatusOr<ForeignCheckpoint> Read(Config config, bool weights_only) {
    SplitTensors();
    SS_ASSIGN_OR_RETURN(model_, FindHfModel(directory_, config.config,
                                            std::move(config.text), weights_));
    AddFiles(weights_, builder_);
    const bool has_state = !weights_only && !keys_.state_prefix.empty();
    nlohmann::json state = HfState(model_);
    int64_t step = 0;
    if (has_state) {
      SS_RETURN_IF_ERROR(AddTraining());
      absl::StatusOr<std::optional<int64_t>> steps = steps_.TheOne();
      if (!steps.ok()) return Annotate(steps.status(), directory_);
      step = steps->value_or(0);
      state["progress"] = {{"step", step}, {"skipped_iterations", 0}};
    } else {
      SS_RETURN_IF_ERROR(AddHfTensors(model_, weights_, model_.match.found,
                                      kWeightRoles[0], builder_));
    }
    ForeignCheckpoint result;
    SS_ASSIGN_OR_RETURN(result.files, builder_.Build(step, StateText(state),
                                                     R"({"format": "dcp"})"));
    result.checks = std::move(contents_.source.checks);
    result.notes = std::move(contents_.notes);
    result.left_out = LeftOut(has_state);
    return result;
  }

 private:
  // The model's own, under the names that they have in it, and where the others
  // are.
  void SplitTensors() {
    weights_.files = contents_.source.files;
    const std::vector<SourceTensor>& all = contents_.source.tensors;
    for (size_t i = 0; i < all.size(); ++i) {
      const std::string& key = all[i].key;
      if (keys_.IsModel(key)) {
        SourceTensor tensor = all[i];
        tensor.key = key.substr(keys_.model_prefix.size());
        weights_.tensors.push_back(std::move(tensor));
      } else if (!keys_.state_prefix.empty() &&
                 absl::StartsWith(key, keys_.state_prefix)) {
        states_[key.substr(keys_.state_prefix.size())] =
            static_cast<int64_t>(i);
      } else {
        others_.push_back(absl::StrCat("tensor ", Quoted(key)));
      }
    }
    for (const DcpBytes& object : contents_.metadata.bytes) {
      objects_[object.key] = &object;
    }
  }

  absl::Status AddTraining() {
    std::array<std::vector<int64_t>, 2> moments;
    for (size_t i = 0; i < model_.match.tensors.size(); ++i) {
      const SourceTensor& weight = weights_.tensors[model_.match.found[i]];
      SS_RETURN_IF_ERROR(
          CheckTraining(weight, keys_.model_prefix, weight.shape));
      SS_ASSIGN_OR_RETURN(const std::string name, NameOfState(i));
      for (size_t m = 0; m < moments.size(); ++m) {
        SS_ASSIGN_OR_RETURN(
            const int64_t position,
            TakeState(name, absl::StrCat(".", kOptimizerRoles[m + 1])));
        SS_RETURN_IF_ERROR(CheckTraining(contents_.source.tensors[position], "",
                                         weight.shape));
        moments[m].push_back(position);
      }
      SS_RETURN_IF_ERROR(AddStep(name));
    }
    if (!states_.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          directory_, ": ", Quoted(keys_.state_prefix + SmallestState()),
          " is no state that AdamW has for a tensor of the model; "
          "--weights-only leaves the optimizer behind"));
    }
    SS_RETURN_IF_ERROR(AddHfTensors(model_, weights_, model_.match.found,
                                    kOptimizerRoles[0], builder_));
    for (size_t m = 0; m < moments.size(); ++m) {
      SS_RETURN_IF_ERROR(AddHfTensors(model_, contents_.source, moments[m],
                                      kOptimizerRoles[m + 1], builder_));
    }
    return absl::OkStatus();
  }

  std::string SmallestState() const {
    return std::min_element(
               states_.begin(), states_.end(),
               [](const auto& a, const auto& b) { return a.first < b.first; })
        ->first;
  }

  absl::Status CheckTraining(const SourceTensor& tensor,
                             absl::string_view prefix,
                             const ckpt::Shape& shape) const {
    if (tensor.dtype == ckpt::DType::kF32 && tensor.shape == shape) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(absl::StrCat(
        directory_, ": ", Quoted(absl::StrCat(prefix, tensor.key)), " is ",
        ckpt::Name(tensor.dtype), ckpt::ToString(tensor.shape), ", expected ",
        ckpt::Name(ckpt::DType::kF32), ckpt::ToString(shape),
        ", as there is optimizer state; --weights-only takes the weights "
        "alone"));
  }

  // Under which of its names the optimizer has tensor i of the match: of a tied
  // model the embedding may be there as the output layer.
  absl::StatusOr<std::string> NameOfState(size_t i) const {
    const std::string& name = weights_.tensors[model_.match.found[i]].key;
    const auto has = [this](absl::string_view candidate) {
      return states_.contains(absl::StrCat(candidate, kFirstMoment));
    };
    if (has(name)) return name;
    const bool is_embedding =
        model_.match.tensors[i].pieces.front().tensor == 0;
    if (is_embedding && !model_.model.untie_embeddings_and_output_weights &&
        has(kHfHeadName)) {
      return std::string(kHfHeadName);
    }
    return absl::DataLossError(absl::StrCat(
        directory_, " has no ",
        Quoted(absl::StrCat(keys_.state_prefix, name, kFirstMoment)),
        ", though others of the model have such a state; --weights-only "
        "leaves the optimizer behind"));
  }

  absl::StatusOr<int64_t> TakeState(absl::string_view name,
                                    absl::string_view state) {
    const auto found = states_.find(absl::StrCat(name, state));
    if (found == states_.end()) {
      return absl::DataLossError(
          absl::StrCat(directory_, " has no ",
                       Quoted(absl::StrCat(keys_.state_prefix, name, state))));
    }
    const int64_t position = found->second;
    states_.erase(found);
    return position;
  }

  // A tensor of one element, or a number among the objects.
  absl::Status AddStep(absl::string_view name) {
    const std::string key = absl::StrCat(keys_.state_prefix, name, kStep);
    if (states_.contains(absl::StrCat(name, kStep))) {
      SS_ASSIGN_OR_RETURN(const int64_t position, TakeState(name, kStep));
      SS_ASSIGN_OR_RETURN(const double step,
                          NumberOf(contents_.source.tensors[position]));
      return Annotate(steps_.Add(step), key);
    }
    const auto found = objects_.find(key);
    if (found == objects_.end()) {
      return absl::DataLossError(
          absl::StrCat(directory_, " has no ", Quoted(key)));
    }
    const DcpPlace& place = found->second->place;
    SS_ASSIGN_OR_RETURN(
        const ckpt::File file,
        ckpt::File::OpenForRead(contents_.source.files[place.file].path));
    SS_ASSIGN_OR_RETURN(const TorchFile torch,
                        TorchFile::Read(file, place.range));
    SS_ASSIGN_OR_RETURN(const double step, torch.root().AsDouble());
    return Annotate(steps_.Add(step), key);
  }

  absl::StatusOr<double> NumberOf(const SourceTensor& tensor) const {
    if (ckpt::NumElements(tensor.shape) != 1 ||
        ckpt::ComponentDType(tensor.dtype) != tensor.dtype) {
      return absl::DataLossError(absl::StrCat(
          Quoted(tensor.key), " is ", ckpt::Name(tensor.dtype),
          ckpt::ToString(tensor.shape), ", expected a number of steps"));
    }
    const SourceChunk& chunk = tensor.chunks.front();
    SS_ASSIGN_OR_RETURN(
        const ckpt::File file,
        ckpt::File::OpenForRead(contents_.source.files[chunk.file].path));
    std::array<std::byte, kMaxStepBytes> bytes = {};
    SS_RETURN_IF_ERROR(
        file.ReadAt(chunk.offset_bytes,
                    std::span(bytes).first(ckpt::ItemSize(tensor.dtype))));
    return ckpt::ToDouble(tensor.dtype, bytes.data());
  }

  std::vector<std::string> LeftOut(bool has_state) const {
    std::vector<std::string> left_out = others_;
    for (const int64_t ignored : model_.match.ignored) {
      left_out.push_back(
          absl::StrCat("buffer ", weights_.tensors[ignored].key));
    }
    if (!has_state && !keys_.state_prefix.empty()) {
      left_out.emplace_back("optimizer state (exp_avg, exp_avg_sq)");
    }
    int64_t num_groups = 0;
    for (const DcpBytes& object : contents_.metadata.bytes) {
      if (absl::StrContains(object.key, kGroups)) {
        ++num_groups;
      } else if (!has_state ||
                 !absl::StartsWith(object.key, keys_.state_prefix)) {
        left_out.push_back(absl::StrCat("object ", Quoted(object.key)));
      }
    }
    if (num_groups > 0) {
      left_out.push_back(absl::StrCat("hyper-parameters of the optimizer (",
                                      num_groups, " objects, param_groups)"));
    }
    return left_out;
  }

  const std::string directory_;
  DcpContents contents_;
  const DcpKeys keys_;
  ckpt::ForeignFilesBuilder builder_;
  SourceTensors weights_;
  // By key without its prefix: where in the contents' tensors.
  absl::flat_hash_map<std::string, int64_t> states_;
  absl::flat_hash_map<absl::string_view, const DcpBytes*> objects_;
  std::vector<std::string> others_;
  HfModel model_;
  OptimizerSteps steps_;
};

}  // namespace

absl::StatusOr<ForeignCheckpoint> ReadDcpModel(const std::string& directory,
                                               const ForeignOptions& options) {
  SS_ASSIGN_OR_RETURN(DcpContents contents, ReadDcp(directory));
  SS_ASSIGN_OR_RETURN(Config config, ReadConfig(directory));
  std::vector<absl::string_view> names;
  names.reserve(contents.source.tensors.size());
  for (const SourceTensor& tensor : contents.source.tensors) {
    names.emplace_back(tensor.key);
  }
  absl::StatusOr<DcpKeys> keys = FindDcpKeys(names, config.config.family);
  if (!keys.ok()) return Annotate(keys.status(), directory);
  if (!options.weights_only && keys->state_prefix.empty()) {
    SS_RETURN_IF_ERROR(Annotate(CheckNoStates(names), directory));
  }
  return ModelReader(directory, std::move(contents), *std::move(keys))
      .Read(std::move(config), options.weights_only);
}

}  // namespace shardshift::reshard
