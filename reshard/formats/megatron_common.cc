// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/megatron_common.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/pickle_json.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

// A parameter has a few values.
constexpr WalkLimits kLimits = {.max_visits = int64_t{1} << 26};

constexpr std::array kKept = {"opt_param_scheduler",
                              "num_floating_point_operations_so_far"};

// All but the numbers of its parameters, which are those of one rank.
absl::StatusOr<json> GroupToJson(const PickleValue& group) {
  SS_ASSIGN_OR_RETURN(const auto entries, group.AsEntries());
  json result = json::object();
  for (const auto& [key, value] : entries) {
    SS_ASSIGN_OR_RETURN(const absl::string_view name, key.AsString());
    if (name == "params") continue;
    // A tensor, such as a learning rate on a device, is none of it.
    absl::StatusOr<json> kept = PickleToJson(value);
    if (kept.ok()) result[std::string(name)] = *std::move(kept);
  }
  return result;
}

}  // namespace

json GroupIdentity(const json& group) {
  json identity = json::array();
  if (!group.is_object()) return {};
  for (const char* key :
       {"wd_mult", "lr_mult", "is_expert_parallel", "is_decoupled_lr"}) {
    // As NeMo calls them.
    const std::string other = absl::StrCat("pre_", key);
    const auto it = group.contains(key) ? group.find(key) : group.find(other);
    if (it == group.end()) return {};
    identity.push_back(*it);
  }
  return identity;
}

absl::Status MegatronCommon::CollectCommon(const PickleValue& common) {
  for (const char* key : kKept) {
    SS_ASSIGN_OR_RETURN(const auto found, common.Find(key));
    if (!found.has_value()) continue;
    SS_ASSIGN_OR_RETURN(common_[key], PickleToJson(*found));
  }
  return absl::OkStatus();
}

absl::Status MegatronCommon::CollectGroups(const PickleValue& optimizer) {
  return WalkPickle(
      optimizer, kLimits,
      [&](const PickleValue& value, int64_t) -> absl::StatusOr<bool> {
        if (!absl::EndsWith(value.path(), "param_groups")) return true;
        SS_ASSIGN_OR_RETURN(const auto groups, value.AsList());
        for (const PickleValue& group : groups) {
          SS_ASSIGN_OR_RETURN(json kept, GroupToJson(group));
          if (std::find(groups_.begin(), groups_.end(), kept) ==
              groups_.end()) {
            groups_.push_back(std::move(kept));
          }
        }
        return false;
      });
}

json MegatronCommon::State(const MegatronArgs& args,
                           std::optional<int64_t> optimizer_step) const {
  json progress = {{"step", args.iteration},
                   {"consumed_samples", args.consumed_samples}};
  // Of an iteration that is skipped the optimizer knows nothing.
  if (optimizer_step.has_value()) {
    progress["skipped_iterations"] = args.iteration - *optimizer_step;
  }
  json megatron = {{"args", args.arguments}, {"common", common_}};
  if (optimizer_step.has_value()) megatron["param_groups"] = groups_;
  return {{"model", ToJson(args.model)},
          {"megatron", std::move(megatron)},
          {"progress", std::move(progress)}};
}

}  // namespace shardshift::reshard
