// Reads bytes as the pickle of a model's file of DeepSpeed, and merges shards
// by the rules that it tells; reads them as a pattern, too. A map has each
// element of the tensor once, copies aside, and no place outside a shard.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ckpt/core/box.h"
#include "reshard/formats/deepspeed_rules.h"
#include "reshard/formats/name_pattern.h"
#include "reshard/formats/pickle.h"
#include "reshard/formats/pickle_value.h"

namespace shardshift::reshard {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckMerged(const ShardMap& map) {
  int64_t held = 0;
  for (const RankShard& rank : map.ranks) {
    for (const ShardPiece& piece : rank.pieces) {
      Require(piece.shard.extent == piece.whole.extent);
      Require(ckpt::Contains(ckpt::WholeBox(rank.shape), piece.shard));
      Require(ckpt::Contains(ckpt::WholeBox(map.shape), piece.whole));
      if (!piece.is_copy) held += ckpt::NumElements(piece.whole);
    }
  }
  Require(held == ckpt::NumElements(map.shape));
}

void Read(const std::string& bytes) {
  const auto pattern = NamePattern::Parse(bytes);
  if (pattern.ok()) {
    const bool matches = pattern->Matches("model.layers.10.w");
    const std::optional<std::string> name = pattern->OnlyName();
    Require(!matches || !name.has_value() || *name == "model.layers.10.w");
    Require(!name.has_value() || pattern->Matches(*name));
  }
  const auto pickle = Pickle::Parse(bytes);
  if (!pickle.ok()) return;
  const auto rules = DeepSpeedRules::Read(PickleValue(*pickle), 2);
  if (!rules.ok()) return;
  const std::vector<std::vector<ckpt::Shape>> all = {
      {{3, 2}, {3, 2}}, {{31, 32}, {30, 32}}, {{4}, {4}}, {{2, 3}, {2, 1}}};
  for (const std::vector<ckpt::Shape>& shards : all) {
    for (const char* name : {"w", "lm_head.weight", "1.norm"}) {
      const auto rule = rules->RuleOf(name, shards);
      if (rule.ok()) CheckMerged(rule->map);
    }
  }
}

}  // namespace
}  // namespace shardshift::reshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shardshift::reshard::Read({reinterpret_cast<const char*>(data), size});
  return 0;
}
