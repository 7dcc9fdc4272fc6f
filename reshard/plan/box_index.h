// Boxes in a tree, so that those that overlap a given one are found without
// looking at the rest.
//
// Each node halves its boxes by their centres, along the dim in which a cut
// would go through the fewest of them. So regular cuts, which straight lines
// take apart, give subtrees that do not overlap, and a box much larger than its
// neighbours costs the one path from the root to it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_PLAN_BOX_INDEX_H_
#define SHARDSHIFT_RESHARD_PLAN_BOX_INDEX_H_

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ckpt/core/box.h"

namespace shardshift::reshard {

// Thread-safe: nothing changes after construction.
class BoxIndex {
 public:
  BoxIndex() = default;

  // The boxes may overlap. Empty ones are left out.
  // REQUIRES: all have the same ndim, and no start is negative.
  explicit BoxIndex(std::span<const ckpt::Box> boxes);

  // Appends the positions of the boxes that overlap `box`, in no order.
  // Gives the number of boxes and nodes it looked at.
  int64_t AppendOverlaps(const ckpt::Box& box,
                         std::vector<int64_t>& found) const;

  // The positions of two boxes that overlap, the lower first; nullopt if no
  // two do.
  std::optional<std::pair<int64_t, int64_t>> AnyOverlap() const;

 private:
  // Of the boxes order_[begin, end). The left child of an inner node follows
  // it; a leaf has no right one.
  struct Node {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t right = 0;

    bool is_leaf() const { return right == 0; }
    int64_t size() const { return end - begin; }
  };
  // Of a box or a node: start and end in every dim.
  using Bounds = const int64_t*;
  using Pair = std::optional<std::pair<int64_t, int64_t>>;

  int64_t Build(const std::vector<int64_t>& bounds, int64_t begin, int64_t end);
  size_t AddNode(const std::vector<int64_t>& bounds, const Node& node);
  bool Overlap(Bounds a, Bounds b) const;
  Bounds BoundsOfNode(int64_t node) const {
    return node_bounds_.data() + node * stride_;
  }
  Bounds BoundsOfBox(int64_t place) const {
    return box_bounds_.data() + place * stride_;
  }
  void Search(int64_t node, Bounds wanted, std::vector<int64_t>& found,
              int64_t& looked_at) const;
  Pair OverlapWithin(int64_t node) const;
  Pair OverlapBetween(int64_t a, int64_t b) const;
  Pair OverlapOf(const Node& a, const Node& b) const;

  int64_t stride_ = 0;               // numbers of a bounds: two a dim
  std::vector<int64_t> order_;       // positions of the boxes
  std::vector<int64_t> box_bounds_;  // in that order
  std::vector<Node> nodes_;          // from the root, if there is a box
  std::vector<int64_t> node_bounds_;
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_PLAN_BOX_INDEX_H_
