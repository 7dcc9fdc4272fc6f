// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/deepspeed_shards.h"

#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {
namespace {

using Shapes = std::map<std::string, ckpt::Shape>;

Shapes ShapesOf(const DeepSpeedModel& model, bool sharded) {
  Shapes shapes;
  if (model.param_shapes.has_value()) {
    for (const auto& group : *model.param_shapes) {
      for (const ShapedName& p : group) shapes.emplace(p.name, p.shape);
    }
  }
  for (const ShapedName& p : model.frozen) shapes.emplace(p.name, p.shape);
  const std::map<std::string, std::string> aliases = AliasesOf(model);
  const std::set<std::string> buffers(model.buffers.begin(),
                                      model.buffers.end());
  for (const auto* tensors : {&model.module, &model.frozen_fragments}) {
    for (const NamedTensor& named : *tensors) {
      // What ZeRO-3 has otherwise are pieces of no shape.
      if (sharded && !buffers.contains(named.name)) continue;
      if (aliases.contains(named.name)) continue;
      shapes.emplace(named.name, named.tensor.shape);
    }
  }
  return shapes;
}

// The rule that the files of all ranks have for a parameter.
absl::StatusOr<MergeRule> CommonRule(std::span<const DeepSpeedModel> models,
                                     std::span<const DeepSpeedRules> rules,
                                     const std::string& name,
                                     const std::vector<ckpt::Shape>& shapes) {
  absl::StatusOr<MergeRule> first = rules.front().RuleOf(name, shapes);
  if (!first.ok()) return Annotate(first.status(), models.front().path);
  for (size_t r = 1; r < rules.size(); ++r) {
    const absl::StatusOr<MergeRule> rule = rules[r].RuleOf(name, shapes);
    if (!rule.ok()) return Annotate(rule.status(), models[r].path);
    if (*rule == *first) continue;
    return absl::DataLossError(absl::StrCat(
        "universal_checkpoint_info of ", models[r].path, " merges ", name,
        " in another way than that of ", models.front().path));
  }
  return first;
}

}  // namespace

absl::StatusOr<ShardMaps> MapsOf(std::span<const DeepSpeedModel> models,
                                 bool sharded,
                                 std::span<const DeepSpeedRules> rules,
                                 std::vector<std::string>& left_out) {
  std::vector<Shapes> all;
  all.reserve(models.size());
  for (const DeepSpeedModel& model : models) {
    all.push_back(ShapesOf(model, sharded));
  }
  const std::set<std::string> buffers(models.front().buffers.begin(),
                                      models.front().buffers.end());
  ShardMaps maps;
  for (const auto& [name, first] : all.front()) {
    std::vector<ckpt::Shape> shapes;
    for (size_t r = 0; r < models.size(); ++r) {
      const auto shape = all[r].find(name);
      if (shape == all[r].end()) {
        return absl::DataLossError(absl::StrCat(models[r].path, " has no ",
                                                name, ", which ",
                                                models.front().path, " has"));
      }
      shapes.push_back(shape->second);
    }
    if (buffers.contains(name)) {
      absl::StatusOr<ShardMap> map = CopiedMap(shapes);
      if (!map.ok()) {
        return Annotate(map.status(),
                        absl::StrCat(models.front().path, ": buffer ", name));
      }
      maps.emplace(name, *std::move(map));
      continue;
    }
    SS_ASSIGN_OR_RETURN(MergeRule rule,
                        CommonRule(models, rules, name, shapes));
    if (rule.padding_rows > 0) {
      left_out.push_back(absl::StrCat("padding of ", name, ", the last ",
                                      rule.padding_rows, " rows"));
    }
    maps.emplace(name, std::move(rule.map));
  }
  return maps;
}

}  // namespace shardshift::reshard
