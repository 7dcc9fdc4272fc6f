// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/torch_dist.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "reshard/formats/dcp_checkpoint.h"
#include "reshard/formats/megatron_args.h"
#include "reshard/formats/megatron_iteration.h"
#include "reshard/formats/megatron_module.h"
#include "reshard/formats/megatron_optimizer.h"
#include "reshard/formats/megatron_ranks.h"
#include "reshard/formats/megatron_steps.h"
#include "reshard/formats/torch_dist_shift.h"
#include "reshard/formats/torch_dist_tensors.h"
#include "reshard/layout/model_map.h"

namespace shardshift::reshard {
namespace {

constexpr char kCommonObject[] = "common_state/shard_0_1";
constexpr char kModelState[] = "optimizer.state.";
constexpr char kFlatState[] = "optimizer.distributed.dp_group_idx_";

// Megatron's words for a state, and our role.
struct StateWord {
  const char* word;
  const char* role;
};
constexpr std::array<StateWord, 4> kStateWords = {
    {{"param", "master"},
     {"fp32_param", "master"},
     {"exp_avg", "exp_avg"},
     {"exp_avg_sq", "exp_avg_sq"}}};

class TorchDistReader {
 public:
  TorchDistReader(std::string source, std::string directory)
      : source_path_(std::move(source)),
        directory_(std::move(directory)),
        builder_(source_path_) {}

  absl::StatusOr<ForeignCheckpoint> Read(const ForeignOptions& options) {
    SS_ASSIGN_OR_RETURN(metadata_, ReadDcpMetadata(directory_));
    SS_ASSIGN_OR_RETURN(source_, ReadDcpTensors(directory_, metadata_));
    // Flat tensors are walked from front to back.
    for (SourceTensor& tensor : source_.tensors) {
      std::sort(tensor.chunks.begin(), tensor.chunks.end(),
                [](const SourceChunk& a, const SourceChunk& b) {
                  return a.box < b.box;
                });
    }
    by_key_ = IndexByKey(source_);
    SS_RETURN_IF_ERROR(ReadCommon(options.vocab_size));
    AddFiles(source_, builder_);
    tensors_ = LogicalTensors(args_.model);
    map_ = std::make_unique<ModelMap>(args_.model, args_.layout);
    absl::StatusOr<TorchDistModel> model =
        TorchDistTensors(args_.model, by_key_);
    if (!model.ok()) return Annotate(model.status(), directory_);
    const std::vector<StoredTensor>& stored = model->tensors;
    bool has_state = false;
    if (!options.weights_only) {
      SS_ASSIGN_OR_RETURN(has_state, AddState(stored));
    }
    if (!has_state) SS_RETURN_IF_ERROR(AddWeights(stored, builder_));
    SS_ASSIGN_OR_RETURN(ForeignCheckpoint result,
                        FinishMegatron(directory_, Format::kTorchDist, args_,
                                       common_, steps_, has_state, builder_));
    if (options.weights_only && HasKeyLike("optimizer.")) {
      result.left_out.emplace_back("optimizer state");
    }
    result.checks = std::move(source_.checks);
    result.checks.insert(result.checks.end(), checks_.begin(), checks_.end());
    if (has_state) {
      ckpt::ForeignFilesBuilder weights(source_path_);
      AddFiles(source_, weights);
      SS_RETURN_IF_ERROR(AddWeights(stored, weights));
      SS_ASSIGN_OR_RETURN(result.weights, weights.Build(0, "{}", "{}"));
    }
    const bool can_be_shifted =
        has_state && HasKeyLike(FullyReshardableKey("master", ""));
    if (can_be_shifted) {
      SS_RETURN_IF_ERROR(CheckShift({.args = args_,
                                     .map = *map_,
                                     .tensors = tensors_,
                                     .stored = *model,
                                     .by_key = by_key_},
                                    options.repair_shifted, result));
    } else if (options.repair_shifted) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--repair-shifted is for optimizer state that was saved as "
          "fully_reshardable; ",
          directory_, " has none"));
    }
    return result;
  }

 private:
  // The common state, in a file of its own or among the objects.
  absl::Status ReadCommon(std::optional<int64_t> vocab_size) {
    const std::string path = ckpt::JoinPath(directory_, "common.pt");
    SS_ASSIGN_OR_RETURN(const bool has_file, ckpt::Exists(path));
    if (has_file) {
      SS_ASSIGN_OR_RETURN(const ckpt::File file, ckpt::File::OpenForRead(path));
      SS_ASSIGN_OR_RETURN(const TorchFile torch, TorchFile::Read(file));
      SS_RETURN_IF_ERROR(
          Annotate(ReadArguments(torch.root(), vocab_size), path));
      return CollectSteps(file, torch, torch.root());
    }
    const DcpBytes* object = metadata_.FindBytes(kCommonObject);
    if (object == nullptr) {
      return absl::DataLossError(absl::StrCat(
          directory_, " has neither common.pt nor the object ", kCommonObject));
    }
    SS_ASSIGN_OR_RETURN(const ckpt::File file, OpenFile(object->place));
    SS_ASSIGN_OR_RETURN(const TorchFile torch,
                        TorchFile::Read(file, object->place.range));
    SS_ASSIGN_OR_RETURN(const PickleValue common, torch.root().At(0));
    SS_RETURN_IF_ERROR(
        Annotate(ReadArguments(common, vocab_size), kCommonObject));
    return CollectSteps(file, torch, common);
  }

  // The optimizer's, in the common state or in objects of its own.
  absl::Status CollectSteps(const ckpt::File& file, const TorchFile& torch,
                            const PickleValue& common) {
    SS_ASSIGN_OR_RETURN(const auto optimizer, common.Find("optimizer"));
    if (optimizer.has_value()) {
      SS_RETURN_IF_ERROR(steps_.Collect(file, torch, *optimizer));
      SS_RETURN_IF_ERROR(common_.CollectGroups(*optimizer));
    }
    for (const DcpBytes& object : metadata_.bytes) {
      if (!absl::StrContains(object.key, kFlatState) ||
          !absl::EndsWith(object.key, ".optimizer/shard_0_1")) {
        continue;
      }
      SS_ASSIGN_OR_RETURN(const ckpt::File data, OpenFile(object.place));
      SS_ASSIGN_OR_RETURN(const TorchFile groups,
                          TorchFile::Read(data, object.place.range));
      SS_RETURN_IF_ERROR(steps_.Collect(data, groups, groups.root()));
      SS_RETURN_IF_ERROR(common_.CollectGroups(groups.root()));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ckpt::File> OpenFile(const DcpPlace& place) const {
    return ckpt::File::OpenForRead(source_.files[place.file].path);
  }

  absl::Status ReadArguments(const PickleValue& common,
                             std::optional<int64_t> vocab_size) {
    SS_ASSIGN_OR_RETURN(const PickleValue args, common.Get("args"));
    SS_ASSIGN_OR_RETURN(args_, ParseMegatronArgs(args, vocab_size));
    SS_ASSIGN_OR_RETURN(const PickleValue iteration, common.Get("iteration"));
    SS_ASSIGN_OR_RETURN(args_.iteration, iteration.AsInt());
    if (args_.iteration < 0) return iteration.Error("is below 0");
    return common_.CollectCommon(common);
  }

  // A stored tensor of the model, found under `key`.
  absl::Status AddTensor(const StoredTensor& stored, const std::string& key,
                         const char* role) {
    SS_ASSIGN_OR_RETURN(const SourceTensor found,
                        InModelSpace(*by_key_.at(key), stored.shape));
    return AddPieces(stored, found, tensors_, role, builder_);
  }

  bool HasKeyLike(absl::string_view part) const {
    return std::any_of(source_.tensors.begin(), source_.tensors.end(),
                       [part](const SourceTensor& tensor) {
                         return absl::StrContains(tensor.key, part);
                       });
  }

  // Gives whether there is any.
  absl::StatusOr<bool> AddState(const std::vector<StoredTensor>& stored) {
    if (HasKeyLike(kModelState)) {
      SS_RETURN_IF_ERROR(AddModelShaped(stored));
      return true;
    }
    const bool has_buckets = HasKeyLike(kFlatState);
    const bool has_objects = std::any_of(
        metadata_.bytes.begin(), metadata_.bytes.end(),
        [](const DcpBytes& object) {
          return absl::StrContains(object.key, ".param_state/shard_");
        });
    if (!has_buckets && !has_objects) return false;
    SS_RETURN_IF_ERROR(AddFlat(has_objects));
    return true;
  }

  // fully_reshardable, fully_sharded_model_space, or a plain optimizer.
  absl::Status AddModelShaped(const std::vector<StoredTensor>& stored) {
    for (const StoredTensor& tensor : stored) {
      std::map<std::string, std::string> key_of_role;
      for (const StateWord& state : kStateWords) {
        const std::string key =
            absl::StrCat(kModelState, state.word, ".", tensor.name);
        if (by_key_.contains(key)) key_of_role[state.role] = key;
      }
      // A parameter of 32 bits is its own master.
      key_of_role.emplace("master", tensor.name);
      for (const char* role : {"master", "exp_avg", "exp_avg_sq"}) {
        const auto key = key_of_role.find(role);
        if (key == key_of_role.end()) {
          return absl::DataLossError(absl::StrCat(
              directory_, ": ", tensor.name, " has no optimizer state ", role));
        }
        SS_RETURN_IF_ERROR(AddTensor(tensor, key->second, role));
      }
    }
    return absl::OkStatus();
  }

  // dp_reshardable and dp_zero_gather_scatter: by model-parallel rank.
  absl::Status AddFlat(bool has_objects) {
    const Layout& layout = args_.layout;
    for (int64_t stage = 0; stage < layout.pipeline; ++stage) {
      for (int64_t tensor = 0; tensor < layout.tensor; ++tensor) {
        for (int64_t expert = 0; expert < layout.expert; ++expert) {
          SS_RETURN_IF_ERROR(AddRank(stage, tensor, expert, has_objects));
        }
      }
    }
    return absl::OkStatus();
  }

  using Chunks = std::vector<std::vector<Parameter>>;

  std::vector<Module> ModulesOf(const Chunks& chunks) const {
    std::vector<Module> modules;
    modules.reserve(chunks.size());
    for (const std::vector<Parameter>& parameters : chunks) {
      modules.push_back(ModuleOf(args_, parameters));
    }
    return modules;
  }

  absl::Status AddWeights(const std::vector<StoredTensor>& stored,
                          ckpt::ForeignFilesBuilder& builder) const {
    for (const StoredTensor& tensor : stored) {
      SS_RETURN_IF_ERROR(AddPieces(tensor, *by_key_.at(tensor.name), tensors_,
                                   "weight", builder));
    }
    return absl::OkStatus();
  }

  absl::Status AddRank(int64_t stage, int64_t tensor, int64_t expert,
                       bool has_objects) {
    const Chunks chunks = ParametersOfRank(
        *map_, {.tensor = tensor, .pipeline = stage, .expert = expert});
    const std::vector<Module> modules = ModulesOf(chunks);
    const OptimizerSource source = {.torch = nullptr,
                                    .folder = directory_,
                                    .args = &args_,
                                    .tensors = &tensors_,
                                    .checks = &checks_,
                                    .is_first_stage = stage == 0,
                                    .is_first_tensor_rank = tensor == 0,
                                    .is_first_expert_rank = expert == 0};
    const Layout& layout = args_.layout;
    const int64_t dense_group = tensor + layout.tensor * stage;
    const int64_t expert_group =
        tensor + layout.tensor * (expert + layout.expert * stage);
    if (has_objects) return AddObject(source, dense_group, modules);
    return AddBuckets(
        source, modules,
        [&](const BucketKey& key) {
          return FindBucketTensor(key,
                                  key.experts ? expert_group : dense_group);
        },
        builder_);
  }

  // "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(...).bucket_idx_1.
  // param", the dtypes being those of the parameters and their gradients.
  absl::StatusOr<const SourceTensor*> FindBucketTensor(const BucketKey& key,
                                                       int64_t group) {
    const bool is_chained = args_.layout.separates_experts();
    const std::string prefix = absl::StrCat(
        is_chained ? (key.experts ? "chained_1." : "chained_0.") : "",
        kFlatState, group, ".gbuf_idx_", key.buffer, ".dtype_");
    const std::string suffix =
        absl::StrCat(".bucket_idx_", key.bucket, ".", key.state);
    if (flat_keys_.empty()) {
      for (const SourceTensor& tensor : source_.tensors) {
        if (!absl::StrContains(tensor.key, kFlatState)) continue;
        const size_t open = tensor.key.find(".dtype_(");
        const size_t close = tensor.key.find(')', open);
        if (close == std::string::npos) continue;
        flat_keys_[absl::StrCat(
            absl::string_view(tensor.key).substr(0, open + 7),
            absl::string_view(tensor.key).substr(close + 1))] = &tensor;
      }
    }
    const auto found = flat_keys_.find(absl::StrCat(prefix, suffix));
    if (found != flat_keys_.end()) return found->second;
    return absl::DataLossError(
        absl::StrCat(directory_, " has no tensor ", prefix, "(...)", suffix));
  }

  absl::Status AddObject(const OptimizerSource& source, int64_t group,
                         const std::vector<Module>& modules) {
    const std::string key =
        absl::StrCat(kFlatState, group, ".param_state/shard_0_1");
    const DcpBytes* object = metadata_.FindBytes(key);
    if (object == nullptr) {
      return absl::DataLossError(
          absl::StrCat(directory_, " has no object ", key));
    }
    SS_ASSIGN_OR_RETURN(const ckpt::File file, OpenFile(object->place));
    SS_ASSIGN_OR_RETURN(const TorchFile torch,
                        TorchFile::Read(file, object->place.range));
    return AddFlatObject(source, torch,
                         static_cast<int64_t>(object->place.file), modules,
                         builder_);
  }

  const std::string source_path_;
  const std::string directory_;
  ckpt::ForeignFilesBuilder builder_;
  DcpMetadata metadata_;
  SourceTensors source_;
  std::vector<StorageCheck> checks_;  // of objects with tensors in them
  TensorsByKey by_key_;
  // Of buckets, their keys without the dtypes.
  std::map<std::string, const SourceTensor*> flat_keys_;
  MegatronCommon common_;
  OptimizerSteps steps_;
  MegatronArgs args_;
  std::vector<LogicalTensor> tensors_;
  std::unique_ptr<ModelMap> map_;
};

}  // namespace

absl::StatusOr<ForeignCheckpoint> ReadTorchDist(const std::string& path,
                                                const ForeignOptions& options) {
  SS_ASSIGN_OR_RETURN(const std::string directory, MegatronIteration(path));
  return TorchDistReader(path, directory).Read(options);
}

}  // namespace shardshift::reshard
