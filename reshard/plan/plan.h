// The planner: which part of which source box goes where. A pure function of
// two lists of boxes of one tensor; running a plan is the executors' work.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_PLAN_PLAN_H_
#define SHARDSHIFT_RESHARD_PLAN_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "ckpt/core/box.h"

namespace shardshift::reshard {

// Copy the elements of `box` from sources[source] to targets[target].
struct BoxCopy {
  int64_t source = 0;
  int64_t target = 0;
  ckpt::Box box;

  bool operator==(const BoxCopy&) const = default;
};

// Copies that fill every target element from exactly one source, by target,
// then by source. Near-linear in boxes plus copies, whatever straight cuts made
// the boxes, and however their sizes differ.
// Errors: DataLoss if two sources overlap, or if part of a target has no
// source; the message names the boxes.
absl::StatusOr<std::vector<BoxCopy>> PlanCopies(
    std::span<const ckpt::Box> sources, std::span<const ckpt::Box> targets);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_PLAN_PLAN_H_
