// The order in which one data-parallel rank sums over its samples.
//
// The global batch is cut into `groups` groups of consecutive samples. Within a
// group samples are added one after another; groups are the leaves of a tree
// (kernels/tree.h). A rank walks its samples in ascending order and keeps the
// sums it cannot combine yet in numbered slots, like a binary counter.
// Source: invariant-numerics.md 1.1 and 2.2.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_OPTIM_SAMPLE_TREE_H_
#define SHARDSHIFT_TRAINER_OPTIM_SAMPLE_TREE_H_

#include <cstdint>
#include <vector>

#include "kernels/tree.h"

namespace shardshift::trainer {

class SampleTree {
 public:
  // What to do with the gradient of one sample: store it in (opens_group) or
  // add it to `slot`; then, `merges` times, add the highest slot in use to the
  // one below and free it.
  struct Visit {
    int64_t group = 0;  // counts from the rank's first
    int64_t slot = 0;
    bool opens_group = false;
    bool closes_group = false;
    int64_t merges = 0;
  };

  // The tree over `groups` leaves, of which a rank holds the run
  // [begin_group, end_group) of `samples_per_group` samples each.
  SampleTree(int64_t groups, int64_t samples_per_group, int64_t begin_group,
             int64_t end_group);

  int64_t groups() const { return groups_; }
  int64_t num_samples() const { return static_cast<int64_t>(visits_.size()); }
  // Groups of this rank.
  int64_t num_groups() const {
    return visits_.empty() ? 0 : visits_.back().group + 1;
  }
  int64_t num_slots() const { return num_slots_; }

  // `sample` counts from the rank's first one.
  const Visit& At(int64_t sample) const { return visits_[sample]; }

  // The nodes left in slots 0, 1, .. after the last sample.
  const std::vector<kernels::TreeNode>& nodes() const { return nodes_; }

 private:
  int64_t groups_;
  int64_t num_slots_ = 0;
  std::vector<Visit> visits_;
  std::vector<kernels::TreeNode> nodes_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_OPTIM_SAMPLE_TREE_H_
