// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/deepspeed_zero.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/deepspeed_values.h"
#include "reshard/formats/zero_slices.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

// Where a stage keeps what both have.
struct StageKeys {
  const char* masters;
  const char* inner;
};
constexpr StageKeys kJoinedKeys = {"single_partition_of_fp32_groups",
                                   "base_optimizer_state"};
constexpr StageKeys kShardedKeys = {"fp32_flat_groups", "optimizer_state_dict"};

// 1, 2 or 3; nullopt for BF16_Optimizer, which has none.
absl::StatusOr<std::optional<int64_t>> StageOf(const PickleValue& shard) {
  SS_ASSIGN_OR_RETURN(const auto value, shard.Find("zero_stage"));
  if (!value.has_value()) return std::nullopt;
  int64_t stage = 0;
  if (value->kind() == PickleKind::kInt) {
    SS_ASSIGN_OR_RETURN(stage, value->AsInt());
  } else {
    SS_ASSIGN_OR_RETURN(const PickleEnumMember member, value->AsEnum());
    if (!member.value.has_value()) return value->Wrong("a number of a stage");
    SS_ASSIGN_OR_RETURN(stage, member.value->AsInt());
  }
  if (stage < 1 || stage > 3) {
    return absl::UnimplementedError(
        absl::StrCat("zero_stage is ", stage, ", expected 1, 2 or 3"));
  }
  return stage;
}

// The entries of a dict by their ints.
using ByNumber = absl::flat_hash_map<int64_t, PickleValue>;

absl::StatusOr<ByNumber> NumberedOf(const PickleValue& dict) {
  SS_ASSIGN_OR_RETURN(const auto entries, dict.AsEntries());
  ByNumber by_number;
  for (const auto& [key, value] : entries) {
    SS_ASSIGN_OR_RETURN(const int64_t number, key.AsInt());
    by_number.try_emplace(number, value);
  }
  return by_number;
}

class ZeroReader {
 public:
  ZeroReader(const DeepSpeedFiles& files, const DeepSpeedModel& model,
             DeepSpeedContents& contents)
      : files_(files),
        model_(model),
        contents_(contents),
        shapes_(*model.param_shapes),
        keys_(files.sharded ? kShardedKeys : kJoinedKeys),
        num_ranks_(std::ssize(files.optimizers)),
        roles_(shapes_.size()),
        steps_(shapes_.size()) {}

  absl::Status Read() {
    for (int64_t rank = 0; rank < num_ranks_; ++rank) {
      SS_ASSIGN_OR_RETURN(const OpenedTorch source,
                          OpenTorch(files_.optimizers[rank]));
      SS_RETURN_IF_ERROR(Annotate(ReadRank(source, rank), source.torch.path()));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadRank(const OpenedTorch& source, int64_t rank) {
    SS_ASSIGN_OR_RETURN(const PickleValue shard,
                        source.torch.root().Get("optimizer_state_dict"));
    SS_RETURN_IF_ERROR(CheckStage(shard));
    SS_RETURN_IF_ERROR(CheckPartitions(shard));
    SS_ASSIGN_OR_RETURN(const PickleValue inner, shard.Get(keys_.inner));
    if (!inner.IsMapping()) {
      return absl::UnimplementedError(absl::StrCat(
          inner.Where(),
          " is no dict: it was saved with elastic_checkpoint; save it again "
          "without"));
    }
    SS_ASSIGN_OR_RETURN(const PickleValue masters, shard.Get(keys_.masters));
    SS_ASSIGN_OR_RETURN(const auto master_list, masters.AsList());
    if (master_list.size() != shapes_.size()) {
      return absl::DataLossError(absl::StrCat(
          masters.Where(), " has ", master_list.size(), " groups, expected ",
          shapes_.size(), " as in param_shapes of ", model_.path));
    }
    SS_ASSIGN_OR_RETURN(const PickleValue state, inner.Get("state"));
    SS_ASSIGN_OR_RETURN(const ByNumber states, NumberedOf(state));
    SS_ASSIGN_OR_RETURN(auto gaps, shard.Find("param_alignment_paddings"));
    if (gaps.has_value() && gaps->IsNone()) gaps.reset();
    const int64_t file =
        contents_.tensors.AddFile(source.torch.path(), source.num_bytes);
    for (size_t g = 0; g < shapes_.size(); ++g) {
      SS_ASSIGN_OR_RETURN(const ZeroArray array, ArrayOf(gaps, g, rank));
      SS_RETURN_IF_ERROR(AddArray(source, master_list[g], g, "master", array,
                                  array.used, file));
      const auto found = states.find(static_cast<int64_t>(g));
      SS_RETURN_IF_ERROR(
          AddStates(source, found == states.end() ? nullptr : &found->second, g,
                    rank, array, file));
    }
    if (rank != 0) return absl::OkStatus();
    return KeepFacts(shard, inner);
  }

  absl::Status CheckStage(const PickleValue& shard) {
    SS_ASSIGN_OR_RETURN(const std::optional<int64_t> stage, StageOf(shard));
    if ((stage == 3) != files_.sharded) {
      return absl::DataLossError(
          absl::StrCat("zero_stage is ", stage.value_or(1),
                       ", which does not go with ", model_.path,
                       ": ZeRO-3 has a model file for each rank, other stages "
                       "have one"));
    }
    return absl::OkStatus();
  }

  // One number, or one for each group.
  absl::Status CheckPartitions(const PickleValue& shard) {
    SS_ASSIGN_OR_RETURN(const PickleValue value, shard.Get("partition_count"));
    std::vector<int64_t> counts;
    if (value.kind() == PickleKind::kInt) {
      counts = {*value.AsInt()};
    } else {
      SS_ASSIGN_OR_RETURN(counts, value.AsInts());
    }
    for (const int64_t count : counts) {
      if (count == num_ranks_) continue;
      return absl::DataLossError(absl::StrCat(
          value.Where(), " is ", count, ", but ", files_.directory, " has the ",
          num_ranks_, " files *_optim_states.pt up to ",
          files_.optimizers.back(), "; all ranks are needed"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ZeroArray> ArrayOf(const std::optional<PickleValue>& all_gaps,
                                    size_t g, int64_t rank) {
    std::vector<int64_t> sizes;
    sizes.reserve(shapes_[g].size());
    for (const ShapedName& p : shapes_[g]) sizes.push_back(p.num_elements);
    if (files_.sharded) return SliceEach(sizes, num_ranks_, rank);
    std::vector<int64_t> gaps;
    if (all_gaps.has_value()) {
      SS_ASSIGN_OR_RETURN(const PickleValue of_group, all_gaps->At(g));
      SS_ASSIGN_OR_RETURN(gaps, of_group.AsInts());
      if (gaps.size() != sizes.size()) {
        return of_group.Error(absl::StrCat("has ", gaps.size(),
                                           " numbers, expected one for each "
                                           "of the ",
                                           sizes.size(), " parameters"));
      }
    }
    return SliceJoined(sizes, gaps, num_ranks_, rank);
  }

  // A flat tensor of array.size elements, or at least of `least`.
  absl::Status AddArray(const OpenedTorch& source, const PickleValue& value,
                        size_t g, const std::string& role,
                        const ZeroArray& array, int64_t least, int64_t file) {
    SS_ASSIGN_OR_RETURN(const TorchTensor tensor, source.torch.Tensor(value));
    const bool fits =
        tensor.shape.size() == 1 &&
        (tensor.shape[0] == array.size || tensor.shape[0] == least) &&
        tensor.IsDense();
    if (!fits) {
      return absl::DataLossError(
          absl::StrCat(value.Where(), " has shape ",
                       ckpt::ToString(tensor.shape), ", expected ", array.size,
                       least == array.size ? "" : absl::StrCat(" or ", least),
                       " elements by param_shapes of ", model_.path));
    }
    contents_.tensors.AddCheck(tensor, file);
    const int64_t item_size = ckpt::ItemSize(tensor.dtype);
    for (const ZeroSlice& slice : array.slices) {
      const ShapedName& p = shapes_[g][slice.parameter];
      SS_RETURN_IF_ERROR(contents_.tensors.AddRun(
          {p.name, role, tensor.dtype, p.shape}, slice.first, slice.last, file,
          tensor.offset_bytes + slice.offset * item_size));
    }
    return absl::OkStatus();
  }

  // The roles that rank 0 has, of every rank.
  absl::Status AddStates(const OpenedTorch& source, const PickleValue* state,
                         size_t g, int64_t rank, const ZeroArray& array,
                         int64_t file) {
    std::set<std::string> roles;
    if (state != nullptr) {
      SS_ASSIGN_OR_RETURN(const auto entries, state->AsEntries());
      for (const auto& [key, value] : entries) {
        SS_ASSIGN_OR_RETURN(const absl::string_view name, key.AsString());
        if (name == "step") {
          SS_ASSIGN_OR_RETURN(const double step, ReadStep(source, value));
          steps_[g].insert(step);
          continue;
        }
        if (!TorchFile::IsTensor(value)) continue;
        if (name == "master" || name == "weight") {
          return value.Error("has the name of another thing");
        }
        SS_RETURN_IF_ERROR(AddArray(source, value, g, std::string(name), array,
                                    array.size, file));
        roles.emplace(name);
      }
    }
    if (rank == 0) roles_[g] = roles;
    if (roles == roles_[g]) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("the optimizer's state of group ",
                                            g, " has other tensors than in ",
                                            files_.optimizers.front()));
  }

  absl::Status KeepFacts(const PickleValue& shard, const PickleValue& inner) {
    SS_ASSIGN_OR_RETURN(const std::optional<int64_t> stage, StageOf(shard));
    // BF16_Optimizer, as ZeRO-1.
    contents_.generic["zero_stage"] = stage.value_or(1);
    SS_ASSIGN_OR_RETURN(const PickleValue groups, inner.Get("param_groups"));
    SS_ASSIGN_OR_RETURN(contents_.generic["groups"],
                        GroupsOf(groups, shapes_, steps_));
    SS_ASSIGN_OR_RETURN(const auto scaler, shard.Find("loss_scaler"));
    if (scaler.has_value() && scaler->kind() == PickleKind::kObject) {
      SS_ASSIGN_OR_RETURN(contents_.generic["loss_scaler"], ScalarsOf(*scaler));
    }
    return absl::OkStatus();
  }

  const DeepSpeedFiles& files_;
  const DeepSpeedModel& model_;
  DeepSpeedContents& contents_;
  const std::vector<std::vector<ShapedName>>& shapes_;
  const StageKeys keys_;
  const int64_t num_ranks_;
  std::vector<std::set<std::string>> roles_;  // by group
  std::vector<std::set<double>> steps_;
};

// A rank's piece of each frozen parameter.
absl::Status AddFrozenPieces(const DeepSpeedModel& model, int64_t rank,
                             int64_t num_ranks,
                             const std::vector<ShapedName>& frozen,
                             int64_t file, DeepSpeedContents& contents) {
  absl::flat_hash_map<std::string, const TorchTensor*> pieces;
  for (const NamedTensor& piece : model.frozen_fragments) {
    pieces.emplace(piece.name, &piece.tensor);
  }
  for (const ShapedName& p : frozen) {
    const int64_t size = p.num_elements;
    SS_ASSIGN_OR_RETURN(const ZeroArray array,
                        SliceEach({&size, 1}, num_ranks, rank));
    const auto piece = pieces.find(p.name);
    if (piece == pieces.end() ||
        piece->second->shape != ckpt::Shape{array.size} ||
        !piece->second->IsDense()) {
      return absl::DataLossError(absl::StrCat(
          "frozen_param_fragments.", p.name, " ",
          piece == pieces.end()
              ? "is not there"
              : absl::StrCat("has shape ",
                             ckpt::ToString(piece->second->shape)),
          ", expected ", array.size, " elements, a rank's piece of ",
          ckpt::ToString(p.shape)));
    }
    contents.tensors.AddCheck(*piece->second, file);
    for (const ZeroSlice& slice : array.slices) {
      SS_RETURN_IF_ERROR(contents.tensors.AddRun(
          {p.name, "weight", piece->second->dtype, p.shape}, slice.first,
          slice.last, file, piece->second->offset_bytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<json> GroupsOf(
    const PickleValue& param_groups,
    const std::vector<std::vector<ShapedName>>& shapes,
    const std::vector<std::set<double>>& steps) {
  SS_ASSIGN_OR_RETURN(const auto groups, param_groups.AsList());
  json result = json::array();
  std::vector<bool> is_taken(shapes.size());
  for (const PickleValue& group : groups) {
    SS_ASSIGN_OR_RETURN(json settings, ScalarsOf(group));
    SS_ASSIGN_OR_RETURN(const PickleValue params, group.Get("params"));
    SS_ASSIGN_OR_RETURN(const auto numbers, params.AsInts());
    json names = json::array();
    std::set<double> group_steps;
    for (const int64_t number : numbers) {
      if (number < 0 || number >= std::ssize(shapes) || is_taken[number]) {
        return params.Error(
            absl::StrCat("has ", number, ", expected each of the ",
                         shapes.size(), " lists of param_shapes in one group"));
      }
      is_taken[number] = true;
      for (const ShapedName& p : shapes[number]) names.push_back(p.name);
      group_steps.insert(steps[number].begin(), steps[number].end());
    }
    settings["params"] = std::move(names);
    if (!group_steps.empty()) settings["step"] = StepsOf(group_steps);
    result.push_back(std::move(settings));
  }
  return result;
}

absl::Status AddUntrainedSharded(const DeepSpeedFiles& files,
                                 const DeepSpeedModel& model,
                                 int64_t model_file,
                                 DeepSpeedContents& contents) {
  absl::flat_hash_map<std::string, const TorchTensor*> module;
  for (const NamedTensor& named : model.module) {
    module.emplace(named.name, &named.tensor);
  }
  for (const std::string& name : model.buffers) {
    const auto buffer = module.find(name);
    if (buffer == module.end()) {
      return absl::DataLossError(
          absl::StrCat(model.path, " has no values of the buffer ", name));
    }
    SS_RETURN_IF_ERROR(Annotate(
        contents.tensors.AddWhole(name, "weight", *buffer->second, model_file),
        model.path));
  }
  if (model.frozen.empty()) return absl::OkStatus();
  const int64_t num_ranks = std::ssize(files.models);
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    SS_ASSIGN_OR_RETURN(const OpenedTorch source,
                        OpenTorch(files.models[rank]));
    SS_ASSIGN_OR_RETURN(const DeepSpeedModel other, ReadDeepSpeedModel(source));
    const int64_t file =
        rank == 0 ? model_file
                  : contents.tensors.AddFile(other.path, source.num_bytes);
    SS_RETURN_IF_ERROR(Annotate(
        AddFrozenPieces(other, rank, num_ranks, model.frozen, file, contents),
        other.path));
  }
  return absl::OkStatus();
}

absl::Status AddZero(const DeepSpeedFiles& files, const DeepSpeedModel& model,
                     int64_t model_file, DeepSpeedContents& contents) {
  if (!model.param_shapes.has_value()) {
    return absl::DataLossError(
        absl::StrCat(model.path, " has no param_shapes, expected them beside ",
                     files.optimizers.front()));
  }
  SS_RETURN_IF_ERROR(ZeroReader(files, model, contents).Read());
  if (files.sharded) {
    if (files.models.size() != files.optimizers.size()) {
      return absl::DataLossError(absl::StrCat(
          files.directory, " has model files of ", files.models.size(),
          " ranks, and the optimizer's of ", files.optimizers.size()));
    }
    return AddUntrainedSharded(files, model, model_file, contents);
  }
  return AddWeights(model, {}, model_file, contents);
}

}  // namespace shardshift::reshard
