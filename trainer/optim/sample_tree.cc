// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/sample_tree.h"

#include <algorithm>
#include <optional>

namespace shardshift::trainer {

using kernels::TreeNode;

SampleTree::SampleTree(int64_t groups, int64_t samples_per_group,
                       int64_t begin_group, int64_t end_group)
    : groups_(groups) {
  for (int64_t group = begin_group; group < end_group; ++group) {
    const auto slot = static_cast<int64_t>(nodes_.size());
    num_slots_ = std::max(num_slots_, slot + 1);
    for (int64_t i = 0; i < samples_per_group; ++i) {
      visits_.push_back({.group = group - begin_group,
                         .slot = slot,
                         .opens_group = i == 0,
                         .closes_group = i == samples_per_group - 1});
    }
    nodes_.push_back({group, group + 1});
    while (nodes_.size() > 1) {
      const TreeNode& left = nodes_[nodes_.size() - 2];
      if (kernels::Sibling(groups, nodes_.back()) != left) break;
      const TreeNode parent = {left.begin, nodes_.back().end};
      nodes_.pop_back();
      nodes_.back() = parent;
      ++visits_.back().merges;
    }
  }
}

}  // namespace shardshift::trainer
