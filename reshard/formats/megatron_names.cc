// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/megatron_names.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace shardshift::reshard {
namespace {

// The beginning of a name, and what stands for it.
struct Rename {
  absl::string_view ours;
  absl::string_view megatron;
  absl::string_view other = {};  // of layers that fuse no norm
};

constexpr std::array kModelNames = {
    Rename{"embedding.word.", "embedding.word_embeddings."},
    Rename{"embedding.position.", "embedding.position_embeddings."},
    Rename{"final_norm.", "decoder.final_layernorm."},
    Rename{"output.", "output_layer."},
};

constexpr std::array kLayerNames = {
    Rename{"attention.proj.", "self_attention.linear_proj."},
    Rename{"attention.qkv.", "self_attention.linear_qkv."},
    Rename{"attention.q_norm.", "self_attention.q_layernorm."},
    Rename{"attention.k_norm.", "self_attention.k_layernorm."},
    Rename{"attention_norm.", "self_attention.linear_qkv.layer_norm_",
           "input_layernorm."},
    Rename{"mlp_norm.", "mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm."},
    Rename{"mlp.router.", "mlp.router."},
    Rename{"mlp.shared_experts.output_gate.", "mlp.shared_experts.gate_"},
    Rename{"mlp.shared_experts.fc1.", "mlp.shared_experts.linear_fc1."},
    Rename{"mlp.shared_experts.fc2.", "mlp.shared_experts.linear_fc2."},
    Rename{"mlp.fc1.", "mlp.linear_fc1."},
    Rename{"mlp.fc2.", "mlp.linear_fc2."},
};

// "fc1.weight" of an expert: of a module of its own, then of a grouped one.
std::vector<std::string> ExpertNames(absl::string_view prefix, int64_t expert,
                                     absl::string_view rest) {
  const std::string linear = absl::StrCat("linear_", rest);
  return {
      absl::StrCat(prefix, "mlp.experts.", linear, expert),
      absl::StrCat(prefix, "mlp.experts.local_experts.", expert, ".", linear)};
}

template <size_t size>
std::vector<std::string> Renamed(absl::string_view prefix,
                                 absl::string_view name,
                                 const std::array<Rename, size>& renames) {
  std::vector<std::string> names;
  for (const Rename& rename : renames) {
    absl::string_view rest = name;
    if (!absl::ConsumePrefix(&rest, rename.ours)) continue;
    names.push_back(absl::StrCat(prefix, rename.megatron, rest));
    if (!rename.other.empty()) {
      names.push_back(absl::StrCat(prefix, rename.other, rest));
    }
    break;
  }
  return names;
}

// Takes "<prefix><number>." off; -1 if it is not there.
int64_t ConsumeNumber(absl::string_view prefix, absl::string_view& name) {
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, prefix)) return -1;
  const size_t dot = rest.find('.');
  int64_t number = -1;
  if (dot == absl::string_view::npos ||
      !absl::SimpleAtoi(rest.substr(0, dot), &number)) {
    return -1;
  }
  name = rest.substr(dot + 1);
  return number;
}

}  // namespace

ParameterName TakeApart(absl::string_view name) {
  ParameterName parts;
  parts.layer = ConsumeNumber("layers.", name);
  parts.expert = ConsumeNumber("mlp.experts.", name);
  parts.rest =
      parts.expert < 0 ? std::string(name) : absl::StrCat("mlp.experts.", name);
  return parts;
}

std::string MegatronName(const ParameterName& name, const LayerStyle& style,
                         bool in_moe_layer) {
  std::vector<std::string> names = MegatronNames(name);
  if (names.size() == 1) return std::move(names.front());
  bool is_first = style.fuses_norms;
  if (name.expert >= 0) is_first = style.groups_experts;
  if (in_moe_layer && absl::StartsWith(name.rest, "mlp_norm.")) {
    is_first = false;
  }
  return std::move(is_first ? names.front() : names.back());
}

std::vector<std::string> MegatronNames(const ParameterName& name) {
  if (name.layer < 0) return Renamed("", name.rest, kModelNames);
  const std::string prefix = absl::StrCat("decoder.layers.", name.layer, ".");
  absl::string_view rest = name.rest;
  if (name.expert >= 0 && absl::ConsumePrefix(&rest, "mlp.experts.")) {
    return ExpertNames(prefix, name.expert, rest);
  }
  return Renamed(prefix, name.rest, kLayerNames);
}

}  // namespace shardshift::reshard
