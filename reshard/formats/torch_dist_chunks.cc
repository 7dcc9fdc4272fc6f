// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/torch_dist_chunks.h"

#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace shardshift::reshard {
namespace {

constexpr absl::string_view kLayers = "decoder.layers.";
constexpr absl::string_view kFirstLayer = "decoder.layers.0.";
constexpr absl::string_view kExperts = "mlp.experts.";

// The parameter's names in the first layer, the expert being the first.
std::vector<std::string> NamesInFirst(ParameterName name) {
  name.layer = 0;
  name.expert = name.expert < 0 ? -1 : 0;
  return MegatronNames(name);
}

// `local`: a name in the first layer.
StackedKey Stacked(const ParameterName& name, absl::string_view local,
                   const ModelConfig& model) {
  std::string rest(local.substr(kFirstLayer.size()));
  StackedKey key;
  key.stack = {model.num_layers};
  key.at = {name.layer};
  if (name.expert >= 0) {
    // "mlp.experts.linear_fc1.weight0" of a grouped module.
    rest.pop_back();
    rest = absl::StrCat(kExperts, "experts.", rest.substr(kExperts.size()));
    key.stack.push_back(model.num_experts);
    key.at.push_back(name.expert);
  }
  key.key = absl::StrCat(kLayers, rest);
  return key;
}

// Each layer for itself.
StackedKey Apart(const StackedKey& stacked) {
  StackedKey key = stacked;
  key.key = absl::StrCat(kLayers, stacked.at[0], ".",
                         stacked.key.substr(kLayers.size()));
  key.stack.erase(key.stack.begin());
  key.at.erase(key.at.begin());
  return key;
}

}  // namespace

std::vector<StackedKey> TorchDistKeys(const ParameterName& name,
                                      const ModelConfig& model) {
  std::vector<StackedKey> keys;
  if (name.layer < 0) {
    for (std::string& key : MegatronNames(name)) {
      keys.push_back({std::move(key)});
    }
    return keys;
  }
  for (const std::string& local : NamesInFirst(name)) {
    if (absl::StrContains(local, "local_experts")) continue;
    keys.push_back(Stacked(name, local, model));
    keys.push_back(Apart(keys.back()));
  }
  return keys;
}

StackedKey TorchDistKey(const ParameterName& name, const ModelConfig& model,
                        const LayerStyle& style) {
  if (name.layer < 0) return {MegatronNames(name).front()};
  // Modules that fuse no norm say that they do; those that do fuse norms have
  // one of its own before experts, and say so.
  const bool is_apart = model.has_experts() && style.fuses_norms &&
                        absl::StartsWith(name.rest, "mlp_norm.");
  const std::vector<std::string> names = NamesInFirst(name);
  return Stacked(name, is_apart ? names.back() : names.front(), model);
}

std::string ObjectKey(const StackedKey& key) {
  if (key.stack.empty()) return absl::StrCat(key.key, "/shard_0_1");
  return absl::StrCat(key.key, "/shard_", absl::StrJoin(key.at, "."), "_",
                      absl::StrJoin(key.stack, "."));
}

std::vector<StackedKey> ExtraStates(const ModelConfig& model,
                                    const LayerStyle& style) {
  std::vector<absl::string_view> modules = {"self_attention.linear_qkv",
                                            "self_attention.linear_proj"};
  if (!model.has_experts()) {
    modules.insert(modules.end(), {"mlp.linear_fc1", "mlp.linear_fc2"});
  }
  if (model.moe_shared_expert_intermediate_size > 0) {
    modules.insert(modules.end(), {"mlp.shared_experts.linear_fc1",
                                   "mlp.shared_experts.linear_fc2"});
  }
  // Transformer Engine's attention and norms.
  if (style.fuses_norms) {
    modules.emplace_back("self_attention.core_attention");
    if (model.qk_layernorm) {
      modules.insert(modules.end(), {"self_attention.q_layernorm",
                                     "self_attention.k_layernorm"});
    }
    if (model.has_experts()) modules.emplace_back("pre_mlp_layernorm");
  }
  std::vector<StackedKey> states;
  const auto add = [&states](absl::string_view module, ckpt::Shape stack,
                             ckpt::Shape at) {
    states.push_back({absl::StrCat(module, "._extra_state"), std::move(stack),
                      std::move(at)});
  };
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    for (const absl::string_view module : modules) {
      add(absl::StrCat(kLayers, module), {model.num_layers}, {layer});
    }
    for (int64_t expert = 0; expert < model.num_experts; ++expert) {
      for (const absl::string_view module : {"linear_fc1", "linear_fc2"}) {
        add(absl::StrCat(kLayers, kExperts, "experts.", module),
            {model.num_layers, model.num_experts}, {layer, expert});
      }
    }
  }
  if (style.fuses_norms) {
    states.push_back({"decoder.final_layernorm._extra_state"});
  }
  return states;
}

ckpt::Shape WholeShape(const Parameter& parameter, const TensorShare& share) {
  ckpt::Shape shape = parameter.shape;
  if (parameter.split == Split::kColumns) {
    shape[1] *= share.ranks;
  } else if (parameter.split != Split::kReplicated) {
    shape[0] *= share.ranks;
  }
  return shape;
}

std::vector<ParameterChunk> ChunksOf(const Parameter& parameter,
                                     const TensorShare& share) {
  const size_t num_pieces = parameter.pieces.size();
  ParameterChunk whole = {ckpt::WholeBox(parameter.shape), 0, num_pieces, 0};
  switch (parameter.split) {
    case Split::kReplicated:
      return {std::move(whole)};
    case Split::kColumns:
      whole.box.start[1] = share.rank * parameter.shape[1];
      return {std::move(whole)};
    case Split::kQkv:
    case Split::kVocabulary:
      whole.box.start[0] = share.rank * parameter.shape[0];
      return {std::move(whole)};
    case Split::kRows:
      break;
  }
  // A piece is what the rank has of one source.
  std::vector<ParameterChunk> chunks;
  chunks.reserve(num_pieces);
  int64_t rows_before = 0;  // of the whole
  for (size_t i = 0; i < num_pieces; ++i) {
    ParameterChunk chunk = {whole.box, i, 1, parameter.pieces[i].offset};
    const int64_t rows = parameter.pieces[i].box.extent[0];
    chunk.box.start[0] = rows_before + share.rank * rows;
    chunk.box.extent[0] = rows;
    rows_before += rows * share.ranks;
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

}  // namespace shardshift::reshard
