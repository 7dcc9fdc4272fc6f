// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/megatron_legacy.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "reshard/formats/megatron_args.h"
#include "reshard/formats/megatron_iteration.h"
#include "reshard/formats/megatron_module.h"
#include "reshard/formats/megatron_optimizer.h"
#include "reshard/formats/megatron_ranks.h"
#include "reshard/formats/megatron_steps.h"
#include "reshard/layout/model_map.h"

namespace shardshift::reshard {
namespace {

bool IsRankFolder(absl::string_view name) {
  return absl::StartsWith(name, "mp_rank_");
}

class LegacyReader {
 public:
  LegacyReader(const std::string& source, std::string directory)
      : directory_(std::move(directory)), builder_(source), weights_(source) {}

  absl::StatusOr<ForeignCheckpoint> Read(const ForeignOptions& options) {
    SS_RETURN_IF_ERROR(ReadArguments(options.vocab_size));
    weights_only_ = options.weights_only;
    vocab_size_ = options.vocab_size;
    tensors_ = LogicalTensors(args_.model);
    map_ = std::make_unique<ModelMap>(args_.model, args_.layout);
    const Layout& layout = args_.layout;
    ModelRank rank;
    std::set<std::string> expected;
    for (rank.pipeline = 0; rank.pipeline < layout.pipeline; ++rank.pipeline) {
      for (rank.tensor = 0; rank.tensor < layout.tensor; ++rank.tensor) {
        for (rank.expert = 0; rank.expert < layout.expert; ++rank.expert) {
          SS_RETURN_IF_ERROR(NotMissing(ReadRank(rank), rank));
          expected.insert(LegacyFolderName(layout, rank));
        }
      }
    }
    SS_RETURN_IF_ERROR(CheckNoOthers(expected));
    return Finish();
  }

 private:
  absl::Status ReadArguments(std::optional<int64_t> vocab_size) {
    SS_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                        ckpt::ListDirectory(directory_));
    const auto first = std::find_if(names.begin(), names.end(), IsRankFolder);
    if (first == names.end()) {
      return absl::NotFoundError(
          absl::StrCat(directory_, " has no folder mp_rank_*"));
    }
    const std::string path =
        ckpt::JoinPath(ckpt::JoinPath(directory_, *first), kLegacyModelFile);
    const absl::StatusOr<ckpt::File> file = ckpt::File::OpenForRead(path);
    if (absl::IsNotFound(file.status())) {
      return absl::DataLossError(absl::StrCat(
          path,
          " is missing, every rank has it: get it from where the run "
          "saved"));
    }
    SS_RETURN_IF_ERROR(file.status());
    SS_ASSIGN_OR_RETURN(const TorchFile torch, TorchFile::Read(*file));
    const auto read = [&]() -> absl::Status {
      SS_ASSIGN_OR_RETURN(const PickleValue args, torch.root().Get("args"));
      SS_ASSIGN_OR_RETURN(args_, ParseMegatronArgs(args, vocab_size));
      SS_ASSIGN_OR_RETURN(const PickleValue version,
                          torch.root().Get("checkpoint_version"));
      SS_ASSIGN_OR_RETURN(const double number, version.AsDouble());
      if (number < 2) {
        return absl::UnimplementedError(absl::StrCat(
            "checkpoint_version is ", number,
            ", expected 2 or 3: older ones order q, k and v otherwise"));
      }
      SS_ASSIGN_OR_RETURN(const PickleValue iteration,
                          torch.root().Get("iteration"));
      SS_ASSIGN_OR_RETURN(args_.iteration, iteration.AsInt());
      if (args_.iteration < 0) return iteration.Error("is below 0");
      return common_.CollectCommon(torch.root());
    };
    return Annotate(read(), path);
  }

  // Of a rank that the arguments tell of every file has to be there.
  absl::Status NotMissing(absl::Status status, const ModelRank& rank) const {
    if (!absl::IsNotFound(status)) return status;
    const Layout& layout = args_.layout;
    return absl::DataLossError(absl::StrCat(
        status.message(), "; it is of tensor rank ", rank.tensor,
        layout.pipeline > 1 ? absl::StrCat(", stage ", rank.pipeline) : "",
        layout.expert > 1 ? absl::StrCat(", expert rank ", rank.expert) : "",
        " of ", ToString(layout),
        ", and all ranks are needed: get it from where the run saved"));
  }

  // More ranks than the arguments tell of would be of another layout.
  absl::Status CheckNoOthers(const std::set<std::string>& expected) const {
    SS_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                        ckpt::ListDirectory(directory_));
    for (const std::string& name : names) {
      if (!IsRankFolder(name) || expected.contains(name)) continue;
      return absl::DataLossError(
          absl::StrCat(directory_, " has ", name,
                       ", but by the arguments it was written on ",
                       ToString(args_.layout), ": ranks of another layout?"));
    }
    return absl::OkStatus();
  }

  // That a rank's file is of the same run and moment as the first one's, and
  // the one that belongs into its folder.
  absl::Status CheckSameRun(const TorchFile& torch,
                            const ModelRank& rank) const {
    SS_ASSIGN_OR_RETURN(const PickleValue args, torch.root().Get("args"));
    SS_ASSIGN_OR_RETURN(const MegatronArgs found,
                        ParseMegatronArgs(args, vocab_size_));
    SS_ASSIGN_OR_RETURN(const PickleValue iteration,
                        torch.root().Get("iteration"));
    SS_ASSIGN_OR_RETURN(const int64_t number, iteration.AsInt());
    if (found.model != args_.model || found.layout != args_.layout ||
        found.bucket_size != args_.bucket_size) {
      return absl::DataLossError(
          "its arguments are not those of the other ranks");
    }
    if (number != args_.iteration ||
        found.consumed_samples != args_.consumed_samples) {
      return absl::DataLossError(absl::StrCat("is of iteration ", number,
                                              ", the other ranks are of ",
                                              args_.iteration));
    }
    const auto written_by = found.arguments.find("rank");
    const auto context = found.arguments.find("context_parallel_size");
    if (written_by == found.arguments.end() ||
        !written_by->is_number_integer() ||
        (context != found.arguments.end() && *context != 1)) {
      return absl::OkStatus();
    }
    const int64_t writer = written_by->get<int64_t>();
    const RankCoordinates at = CoordinatesOf(
        args_.layout,
        std::clamp<int64_t>(writer, 0, args_.layout.world_size() - 1));
    if (at.tensor == rank.tensor && at.pipeline == rank.pipeline) {
      return absl::OkStatus();
    }
    return absl::DataLossError(absl::StrCat(
        "was written by rank ", writer, ", which is tensor rank ", at.tensor,
        " of stage ", at.pipeline, ", not ", rank.tensor, " of ", rank.pipeline,
        ": a folder of another rank?"));
  }

  absl::Status ReadRank(const ModelRank& rank) {
    const std::string folder =
        ckpt::JoinPath(directory_, LegacyFolderName(args_.layout, rank));
    const std::string path = ckpt::JoinPath(folder, kLegacyModelFile);
    SS_ASSIGN_OR_RETURN(const ckpt::File file, ckpt::File::OpenForRead(path));
    SS_ASSIGN_OR_RETURN(const TorchFile torch, TorchFile::Read(file));
    SS_RETURN_IF_ERROR(Annotate(CheckSameRun(torch, rank), path));
    // What they hold is kept until the rank is done.
    const auto chunks = ParametersOfRank(*map_, rank);
    std::vector<Module> modules;
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
      const std::string key =
          chunks.size() == 1 ? "model" : absl::StrCat("model", chunk);
      absl::StatusOr<PickleValue> module = torch.root().Get(key);
      if (!module.ok()) return Annotate(module.status(), path);
      std::vector<const Parameter*> parameters;
      for (const Parameter& p : chunks[chunk]) parameters.push_back(&p);
      SS_ASSIGN_OR_RETURN(Module read, ReadModule(torch, *module, parameters));
      modules.push_back(std::move(read));
    }
    for (const Module& module : modules) NoteReplicas(path, module, rank);
    OptimizerSource optimizer = {.torch = &torch,
                                 .folder = folder,
                                 .args = &args_,
                                 .tensors = &tensors_,
                                 .checks = &checks_,
                                 .is_first_stage = rank.pipeline == 0,
                                 .is_first_tensor_rank = rank.tensor == 0,
                                 .is_first_expert_rank = rank.expert == 0};
    OptimizerKind kind = OptimizerKind::kNone;
    if (!weights_only_) {
      SS_ASSIGN_OR_RETURN(kind, AddOptimizer(optimizer, modules, builder_));
    }
    if (weights_only_) {
      SS_ASSIGN_OR_RETURN(const auto state, torch.root().Find("optimizer"));
      leaves_state_ = leaves_state_ || (state.has_value() && !state->IsNone());
    }
    if (kind != OptimizerKind::kNone) {
      SS_ASSIGN_OR_RETURN(const PickleValue state,
                          torch.root().Get("optimizer"));
      SS_RETURN_IF_ERROR(Annotate(steps_.Collect(file, torch, state), path));
      SS_RETURN_IF_ERROR(Annotate(common_.CollectGroups(state), path));
    }
    if (kind == OptimizerKind::kNoStepYet) SS_RETURN_IF_ERROR(steps_.Add(0));
    SS_RETURN_IF_ERROR(
        AddWeights(optimizer, modules,
                   kind == OptimizerKind::kNone ? builder_ : weights_));
    kinds_[static_cast<size_t>(kind)] = true;
    return absl::OkStatus();
  }

  // What other ranks have, too: replicated parameters, on other expert ranks
  // all but the experts, and the embedding where it serves as output layer.
  void NoteReplicas(const std::string& path, const Module& module,
                    const ModelRank& rank) {
    for (const ModuleParameter& p : module.parameters) {
      // A part of the vocabulary may be padding alone.
      if (p.is_expert || p.parameter->pieces.empty()) continue;
      std::string key = p.parameter->is_copy
                            ? tensors_[p.parameter->pieces.front().tensor].name
                            : p.parameter->name;
      if (p.parameter->split != Split::kReplicated) {
        absl::StrAppend(&key, " of tensor rank ", rank.tensor);
      }
      const FileRange range = {p.tensor.offset_bytes, p.tensor.num_bytes()};
      const auto [first, is_first] = first_copies_.try_emplace(
          std::move(key), StorageCheck{path, range, 0});
      if (is_first || first->second.range.num_bytes != range.num_bytes) {
        continue;
      }
      replicas_.push_back(
          {first->first, first->second.path, first->second.range, path, range});
    }
  }

  bool Has(OptimizerKind kind) const {
    return kinds_[static_cast<size_t>(kind)];
  }

  absl::StatusOr<ForeignCheckpoint> Finish() {
    const bool has_state = !Has(OptimizerKind::kNone);
    const auto num_kinds = std::count(kinds_.begin(), kinds_.end(), true);
    if (!has_state && num_kinds > 1) {
      return absl::DataLossError(
          absl::StrCat(directory_, ": only some ranks have optimizer state"));
    }
    SS_ASSIGN_OR_RETURN(ForeignCheckpoint result,
                        FinishMegatron(directory_, Format::kMegatron, args_,
                                       common_, steps_, has_state, builder_));
    if (leaves_state_) result.left_out.emplace_back("optimizer state");
    if (Has(OptimizerKind::kNoStepYet)) {
      result.notes.emplace_back(
          "the optimizer has made no step yet: its moments are zero");
    }
    result.checks = std::move(checks_);
    result.replicas = std::move(replicas_);
    if (has_state) {
      SS_ASSIGN_OR_RETURN(result.weights, weights_.Build(0, "{}", "{}"));
    }
    return result;
  }

  const std::string directory_;
  ckpt::ForeignFilesBuilder builder_;
  ckpt::ForeignFilesBuilder weights_;  // where builder_ gets the masters
  MegatronCommon common_;
  OptimizerSteps steps_;
  bool weights_only_ = false;
  bool leaves_state_ = false;
  std::optional<int64_t> vocab_size_;
  std::vector<StorageCheck> checks_;
  std::map<std::string, StorageCheck> first_copies_;  // places alone
  std::vector<ReplicaCheck> replicas_;
  MegatronArgs args_;
  std::vector<LogicalTensor> tensors_;
  std::unique_ptr<ModelMap> map_;
  std::array<bool, 4> kinds_ = {};  // by OptimizerKind: of some rank
};

}  // namespace

absl::StatusOr<ForeignCheckpoint> ReadMegatronLegacy(
    const std::string& path, const ForeignOptions& options) {
  SS_ASSIGN_OR_RETURN(const std::string directory, MegatronIteration(path));
  return LegacyReader(path, directory).Read(options);
}

}  // namespace shardshift::reshard
