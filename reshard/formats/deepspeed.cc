// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/deepspeed.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/deepspeed_files.h"
#include "reshard/formats/deepspeed_layers.h"
#include "reshard/formats/deepspeed_model.h"
#include "reshard/formats/deepspeed_plain.h"
#include "reshard/formats/deepspeed_rules.h"
#include "reshard/formats/deepspeed_shards.h"
#include "reshard/formats/deepspeed_zero.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

class DeepSpeedReader {
 public:
  explicit DeepSpeedReader(DeepSpeedFolder folder)
      : folder_(std::move(folder)) {}

  absl::StatusOr<ForeignCheckpoint> Read() {
    SS_RETURN_IF_ERROR(ReadModels());
    const DeepSpeedFiles& first = folder_.ranks.front();
    if (!first.optimizers.empty()) {
      SS_RETURN_IF_ERROR(ReadZero());
    } else if (first.sharded || models_.front().param_shapes.has_value()) {
      return absl::DataLossError(absl::StrCat(
          folder_.directory,
          " has no *zero_pp_rank_*_optim_states.pt, expected one for "
          "each rank beside ",
          models_.front().path));
    } else {
      SS_RETURN_IF_ERROR(ReadPlain());
    }
    return Finish(folder_.directory, "deepspeed", models_.front(),
                  std::move(contents_));
  }

 private:
  absl::Status ReadModels() {
    for (const DeepSpeedFiles& files : folder_.ranks) {
      SS_ASSIGN_OR_RETURN(const OpenedTorch source,
                          OpenTorch(files.models.front()));
      SS_ASSIGN_OR_RETURN(DeepSpeedModel model, ReadDeepSpeedModel(source));
      if (models_.empty()) SS_RETURN_IF_ERROR(SetDegrees(model));
      SS_RETURN_IF_ERROR(CheckSameRun(model));
      if (degrees_.tensor > 1) {
        absl::StatusOr<DeepSpeedRules> rules =
            DeepSpeedRules::Read(source.torch.root(), degrees_.tensor);
        if (!rules.ok()) return Annotate(rules.status(), model.path);
        rules_.push_back(*std::move(rules));
      }
      model_files_.push_back(
          contents_.tensors.AddFile(model.path, source.num_bytes));
      models_.push_back(std::move(model));
    }
    return absl::OkStatus();
  }

  // As the first model tells, else from the files that there are.
  absl::Status SetDegrees(const DeepSpeedModel& model) {
    const auto num_ranks = std::ssize(folder_.ranks);
    if (model.degrees.has_value()) {
      degrees_ = *model.degrees;
    } else if (!folder_.layers.empty()) {
      degrees_.tensor = std::ssize(folder_.layers.front().paths);
      degrees_.pipeline = num_ranks / degrees_.tensor;
    } else {
      degrees_.tensor = num_ranks;
    }
    const bool fits = degrees_.tensor <= num_ranks &&
                      degrees_.pipeline <= num_ranks &&
                      degrees_.tensor * degrees_.pipeline == num_ranks;
    if (!fits) {
      return absl::DataLossError(absl::StrCat(
          model.path, " is of ", degrees_.pipeline, " pipeline stages and ",
          degrees_.tensor, " tensor-parallel ranks, but there are ", num_ranks,
          " files mp_rank_* up to ", folder_.ranks.back().models.front(),
          "; all ranks are needed"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckSameRun(const DeepSpeedModel& model) const {
    if (models_.empty()) return absl::OkStatus();
    const DeepSpeedModel& first = models_.front();
    if (model.global_steps == first.global_steps &&
        model.degrees == first.degrees) {
      return absl::OkStatus();
    }
    return absl::DataLossError(absl::StrCat(
        first.path, " and ", model.path, " are not of one checkpoint: global_",
        "steps ", first.global_steps, " and ", model.global_steps,
        model.degrees == first.degrees ? ""
                                       : ", other degrees of parallelism"));
  }

  absl::Status ReadZero() {
    if (folder_.ranks.front().sharded && !folder_.layers.empty()) {
      return absl::UnimplementedError(absl::StrCat(
          folder_.directory, " has both files of ZeRO-3 and of a pipeline, ",
          folder_.layers.front().paths.front()));
    }
    for (int64_t stage = 0; stage < degrees_.pipeline; ++stage) {
      SS_RETURN_IF_ERROR(ReadStage(stage));
    }
    contents_.generic["groups"] = std::move(groups_);
    if (!folder_.layers.empty()) {
      SS_RETURN_IF_ERROR(
          AddLayers(folder_, degrees_, models_, rules_, contents_));
    }
    if (degrees_.tensor > 1 && degrees_.pipeline == 1) {
      contents_.notes.emplace_back(
          "versions of DeepSpeed with AutoTP count a sample once for each "
          "tensor-parallel rank; consumed_samples is as it is stored");
    }
    return absl::OkStatus();
  }

  absl::Status ReadStage(int64_t stage) {
    const auto first = static_cast<size_t>(stage * degrees_.tensor);
    const auto count = static_cast<size_t>(degrees_.tensor);
    ShardMaps maps;
    if (count > 1) {
      SS_ASSIGN_OR_RETURN(maps, MapsOf(std::span(models_).subspan(first, count),
                                       folder_.ranks.front().sharded,
                                       std::span(rules_).subspan(first, count),
                                       contents_.left_out));
    }
    contents_.tensors.StartStage(std::move(maps));
    json of_first;
    for (size_t rank = first; rank < first + count; ++rank) {
      contents_.tensors.StartRank(static_cast<int64_t>(rank - first));
      SS_RETURN_IF_ERROR(AddZero(folder_.ranks[rank], models_[rank],
                                 model_files_[rank], contents_));
      json groups = std::move(contents_.generic["groups"]);
      if (rank == first) of_first = groups;
      if (groups != of_first) {
        return absl::DataLossError(absl::StrCat(
            folder_.ranks[rank].optimizers.front(),
            " has other groups of parameters, settings or steps than ",
            folder_.ranks[first].optimizers.front()));
      }
    }
    MergeGroups(std::move(of_first));
    return absl::OkStatus();
  }

  // A group that stages share has one entry, of the parameters of all.
  void MergeGroups(json groups) {
    for (size_t g = 0; g < groups.size(); ++g) {
      json names = std::move(groups[g]["params"]);
      groups[g]["params"] = json::array();
      json settings = g < groups_.size() ? groups_[g] : json();
      if (g < groups_.size()) settings["params"] = json::array();
      if (settings != groups[g]) {
        groups[g]["params"] = std::move(names);
        groups_.push_back(std::move(groups[g]));
        continue;
      }
      json& all = groups_[g]["params"];
      for (json& name : names) {
        if (std::find(all.begin(), all.end(), name) == all.end()) {
          all.push_back(std::move(name));
        }
      }
    }
  }

  absl::Status ReadPlain() {
    if (folder_.ranks.size() > 1 || !folder_.layers.empty()) {
      return absl::UnimplementedError(absl::StrCat(
          folder_.directory,
          " is of a run with model parallelism and without "
          "ZeRO, which numbers parameters on each rank and does not name them; "
          "it cannot be read"));
    }
    const DeepSpeedFiles& files = folder_.ranks.front();
    SS_ASSIGN_OR_RETURN(const OpenedTorch source,
                        OpenTorch(files.models.front()));
    return AddPlain(source, models_.front(), model_files_.front(), contents_);
  }

  const DeepSpeedFolder folder_;
  DeepSpeedDegrees degrees_;
  std::vector<DeepSpeedModel> models_;  // by model-parallel rank
  std::vector<DeepSpeedRules> rules_;   // the same, if they are needed
  std::vector<int64_t> model_files_;
  json groups_ = json::array();
  DeepSpeedContents contents_;
};

}  // namespace

absl::StatusOr<ForeignCheckpoint> ReadDeepSpeed(const std::string& path) {
  SS_ASSIGN_OR_RETURN(const std::string directory,
                      DeepSpeedTag(path, "latest"));
  SS_ASSIGN_OR_RETURN(DeepSpeedFolder folder, ListDeepSpeedFiles(directory));
  return DeepSpeedReader(std::move(folder)).Read();
}

}  // namespace shardshift::reshard
