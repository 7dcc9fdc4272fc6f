// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/deepspeed_layers.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/deepspeed_shards.h"

namespace shardshift::reshard {
namespace {

constexpr absl::string_view kTied = "tied_modules.";

using Shapes = std::map<std::string, ckpt::Shape>;

// Whether a name is of a layer, by its number.
bool IsNumbered(absl::string_view name) {
  int64_t number = 0;
  return absl::SimpleAtoi(name.substr(0, name.find('.')), &number);
}

class LayerReader {
 public:
  LayerReader(const DeepSpeedFolder& folder, const DeepSpeedDegrees& degrees,
              const std::vector<DeepSpeedModel>& models,
              std::span<const DeepSpeedRules> rules,
              DeepSpeedContents& contents)
      : folder_(folder),
        rules_(rules),
        contents_(contents),
        num_ranks_(degrees.tensor),
        trained_(num_ranks_),
        seen_(num_ranks_) {
    for (size_t i = 0; i < models.size(); ++i) {
      AddNames(models[i], trained_[i % num_ranks_]);
    }
    for (const auto& [name, shape] : trained_[0]) {
      absl::string_view rest = name;
      const size_t dot = name.find('.', kTied.size());
      if (!absl::ConsumePrefix(&rest, kTied) || dot == name.npos) continue;
      tied_[name.substr(kTied.size(), dot - kTied.size())].emplace(
          name.substr(dot + 1), shape);
    }
  }

  absl::Status Read() {
    for (const DeepSpeedLayer& layer : folder_.layers) {
      SS_RETURN_IF_ERROR(ReadLayer(layer));
    }
    return CheckAllThere();
  }

 private:
  void AddNames(const DeepSpeedModel& model, Shapes& trained) {
    for (const auto& group : *model.param_shapes) {
      for (const ShapedName& p : group) trained.emplace(p.name, p.shape);
    }
    buffers_.insert(model.buffers.begin(), model.buffers.end());
    names_.insert(model.buffers.begin(), model.buffers.end());
    for (const auto& [alias, source] : model.shared) names_.insert(alias);
    for (const auto& [name, shape] : trained) names_.insert(name);
  }

  absl::Status ReadLayer(const DeepSpeedLayer& layer) {
    if (std::ssize(layer.paths) != num_ranks_) {
      return absl::DataLossError(absl::StrCat(
          folder_.directory, " has ", layer.paths.size(), " files like ",
          layer.paths.front(), ", expected one for each of the ", num_ranks_,
          " tensor-parallel ranks"));
    }
    std::vector<DeepSpeedModel> shards(num_ranks_);
    std::vector<int64_t> files(num_ranks_);
    for (int64_t t = 0; t < num_ranks_; ++t) {
      SS_ASSIGN_OR_RETURN(const OpenedTorch source, OpenTorch(layer.paths[t]));
      files[t] =
          contents_.tensors.AddFile(source.torch.path(), source.num_bytes);
      shards[t].path = source.torch.path();
      absl::StatusOr<std::vector<NamedTensor>> module = ReadNamedTensors(
          source, source.torch.root(), absl::StrCat("layer ", layer.number),
          contents_.left_out);
      if (!module.ok()) return Annotate(module.status(), shards[t].path);
      shards[t].module = *std::move(module);
    }
    SS_ASSIGN_OR_RETURN(const auto prefix, PrefixOf(layer, shards[0]));
    if (!prefix.has_value()) return absl::OkStatus();
    for (int64_t t = 0; t < num_ranks_; ++t) {
      for (NamedTensor& named : shards[t].module) {
        named.name = absl::StrCat(*prefix, named.name);
      }
      shards[t].shared = AliasesOf(shards[t]);
      shards[t].buffers.assign(buffers_.begin(), buffers_.end());
      SS_RETURN_IF_ERROR(Annotate(CheckTrained(shards[t], t), shards[t].path));
    }
    return AddShards(shards, files);
  }

  // What goes before the names of the layer; nullopt if they are of one of
  // several keys, and none of its tensors is needed.
  absl::StatusOr<std::optional<std::string>> PrefixOf(
      const DeepSpeedLayer& layer, const DeepSpeedModel& shard) {
    std::string own = absl::StrCat(layer.number, ".");
    const auto next = names_.lower_bound(own);
    if (next != names_.end() && next->compare(0, own.size(), own) == 0) {
      return own;
    }
    Shapes shapes;
    for (const NamedTensor& named : shard.module) {
      shapes.emplace(named.name, named.tensor.shape);
    }
    std::vector<std::string> keys;
    bool has_more = false;
    for (const auto& [key, tied] : tied_) {
      bool has_all = true;
      for (const auto& [name, shape] : tied) {
        const auto it = shapes.find(name);
        has_all = has_all && it != shapes.end() && it->second == shape;
      }
      if (!has_all) continue;
      keys.push_back(key);
      has_more = has_more || tied.size() != shapes.size();
    }
    if (keys.empty()) return own;
    if (keys.size() == 1) {
      contents_.notes.push_back(absl::StrCat(
          "layer ", layer.number, " is taken to be ", kTied, keys.front()));
      return absl::StrCat(kTied, keys.front(), ".");
    }
    if (!has_more) return std::nullopt;
    return absl::UnimplementedError(absl::StrCat(
        shard.path, " may be tied_modules.", keys[0], " or tied_modules.",
        keys[1],
        ": which of them its frozen parameters and buffers belong to "
        "cannot be told"));
  }

  // Takes what is trained, and there before, of a tied layer, out of the shard.
  // It must be the same.
  absl::Status CheckTrained(DeepSpeedModel& shard, int64_t t) {
    std::vector<NamedTensor> others;
    for (NamedTensor& named : shard.module) {
      const auto trained = trained_[t].find(named.name);
      if (trained == trained_[t].end()) {
        seen_[t].try_emplace(named.name);
        others.push_back(std::move(named));
        continue;
      }
      if (trained->second != named.tensor.shape) {
        return absl::DataLossError(
            absl::StrCat(named.name, " has shape ",
                         ckpt::ToString(named.tensor.shape), ", expected ",
                         ckpt::ToString(trained->second), " by param_shapes"));
      }
      const auto [first, is_new] =
          seen_[t].try_emplace(named.name, Place{shard.path, named.tensor});
      if (is_new) {
        others.push_back(std::move(named));
      } else {
        SS_RETURN_IF_ERROR(AddReplica(named, shard.path, first->second));
      }
    }
    shard.module = std::move(others);
    return absl::OkStatus();
  }

  struct Place {
    std::string path;
    TorchTensor tensor;
  };

  absl::Status AddReplica(const NamedTensor& copy, const std::string& path,
                          const Place& first) {
    const TorchTensor& a = first.tensor;
    const TorchTensor& b = copy.tensor;
    if (a.dtype != b.dtype || !a.IsDense() || !b.IsDense()) {
      return absl::UnimplementedError(absl::StrCat(
          copy.name, " is ", ckpt::Name(b.dtype), ", and ", ckpt::Name(a.dtype),
          " in ", first.path, ", or not dense: they cannot be compared"));
    }
    contents_.replicas.push_back({copy.name,
                                  first.path,
                                  {a.offset_bytes, a.num_bytes()},
                                  path,
                                  {b.offset_bytes, b.num_bytes()}});
    return absl::OkStatus();
  }

  absl::Status AddShards(const std::vector<DeepSpeedModel>& shards,
                         const std::vector<int64_t>& files) {
    ShardMaps maps;
    if (num_ranks_ > 1) {
      SS_ASSIGN_OR_RETURN(maps, MapsOf(shards, /*sharded=*/false,
                                       rules_.first(1), contents_.left_out));
    }
    contents_.tensors.StartStage(std::move(maps));
    for (int64_t t = 0; t < num_ranks_; ++t) {
      contents_.tensors.StartRank(t);
      SS_RETURN_IF_ERROR(AddWeights(shards[t], {}, files[t], contents_));
    }
    return absl::OkStatus();
  }

  absl::Status CheckAllThere() {
    for (int64_t t = 0; t < num_ranks_; ++t) {
      for (const auto& [name, shape] : trained_[t]) {
        if (!IsNumbered(name) || seen_[t].contains(name)) continue;
        return Missing(name, t);
      }
      for (const std::string& name : buffers_) {
        if (seen_[t].contains(name)) continue;
        if (IsNumbered(name)) return Missing(name, t);
        contents_.left_out.push_back(
            absl::StrCat("the buffer ", name, ", which no layer's file has"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Missing(const std::string& name, int64_t t) const {
    return absl::DataLossError(absl::StrCat(
        folder_.directory, " has no layer_", name.substr(0, name.find('.')),
        "-*model_states.pt of tensor-parallel rank ", t, " with ", name,
        "; the files of all layers are needed"));
  }

  const DeepSpeedFolder& folder_;
  const std::span<const DeepSpeedRules> rules_;
  DeepSpeedContents& contents_;
  const int64_t num_ranks_;
  std::vector<Shapes> trained_;  // by tensor-parallel rank
  std::set<std::string> buffers_;
  std::set<std::string> names_;         // of all that is known
  std::map<std::string, Shapes> tied_;  // by key, local names; of rank 0
  // What layers have, by rank; where, if it is trained.
  std::vector<absl::flat_hash_map<std::string, Place>> seen_;
};

}  // namespace

absl::Status AddLayers(const DeepSpeedFolder& folder,
                       const DeepSpeedDegrees& degrees,
                       const std::vector<DeepSpeedModel>& models,
                       std::span<const DeepSpeedRules> rules,
                       DeepSpeedContents& contents) {
  return LayerReader(folder, degrees, models, rules, contents).Read();
}

}  // namespace shardshift::reshard
