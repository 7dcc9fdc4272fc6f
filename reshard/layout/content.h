// What a checkpoint stores of every parameter of its model: one role or more,
// a logical tensor under each.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_LAYOUT_CONTENT_H_
#define SHARDSHIFT_RESHARD_LAYOUT_CONTENT_H_

#include <array>
#include <cstdint>
#include <span>

namespace shardshift::reshard {

enum class Content : uint8_t {
  kTraining,  // kOptimizerRoles, as fp32: what a run needs to go on
  kWeights,   // kWeightRoles, of any float dtype: an export
};

inline constexpr std::array<const char*, 3> kOptimizerRoles = {
    "master", "exp_avg", "exp_avg_sq"};
inline constexpr std::array<const char*, 1> kWeightRoles = {"weight"};

inline std::span<const char* const> RolesOf(Content content) {
  if (content == Content::kWeights) return kWeightRoles;
  return kOptimizerRoles;
}

// Beside the roles of training a tensor may have the weight that a foreign run
// computed with, where that is not the master, rounded: the role after theirs.
inline constexpr int64_t kKeptWeight = kOptimizerRoles.size();

inline const char* RoleAt(Content content, int64_t role) {
  const bool is_kept = content == Content::kTraining && role == kKeptWeight;
  return is_kept ? kWeightRoles[0] : RolesOf(content)[role];
}

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_LAYOUT_CONTENT_H_
