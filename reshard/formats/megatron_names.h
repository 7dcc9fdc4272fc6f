// What Megatron-Core calls the parameters of a model.
// Source: checkpoint-formats.md 3.3, 4.2 and 6.3.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_MEGATRON_NAMES_H_
#define SHARDSHIFT_RESHARD_FORMATS_MEGATRON_NAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace shardshift::reshard {

// A parameter's name taken apart: "layers.3.mlp.experts.1.fc1.weight" is layer
// 3, expert 1, "mlp.experts.fc1.weight".
struct ParameterName {
  int64_t layer = -1;   // -1: in no layer
  int64_t expert = -1;  // -1: of no expert
  std::string rest = {};

  bool operator==(const ParameterName&) const = default;
};
ParameterName TakeApart(absl::string_view name);

// How the layers are built, which decides what parameters are called, and in
// which order they come.
struct LayerStyle {
  bool fuses_norms = true;     // Transformer Engine's implementation
  bool groups_experts = true;  // one module for all experts of a rank

  bool operator==(const LayerStyle&) const = default;
};

// The name in a module of that style. `in_moe_layer`: there the norm before the
// experts is part of no projection. REQUIRES: as MegatronNames.
std::string MegatronName(const ParameterName& name, const LayerStyle& style,
                         bool in_moe_layer);

// The names in a module that has the layers from `layer` 0 and the experts from
// `expert` 0 on. Megatron has several, by its implementation of the layer; the
// first is Transformer Engine's.
// REQUIRES: a parameter of our model families.
std::vector<std::string> MegatronNames(const ParameterName& name);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_MEGATRON_NAMES_H_
