// The summation tree over n leaves, for any n: neighbours first. A node over
// more than one leaf splits at the largest power of two below its leaf count.
// A process holding any contiguous run of leaves can evaluate the complete
// nodes inside its run alone; whoever then holds all nodes finishes the tree.
// Units: leaves.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_TREE_H_
#define SHARDSHIFT_KERNELS_TREE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace shardshift::kernels {

// The node over leaves [begin,end).
struct TreeNode {
  int64_t begin = 0;
  int64_t end = 0;
  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

// The first leaf of the right child. REQUIRES: node has at least two leaves.
int64_t SplitPoint(const TreeNode& node);

// Whether `node` is a node of the tree over n leaves.
bool IsTreeNode(int64_t n, const TreeNode& node);

// The maximal nodes of the tree over n leaves that tile [begin,end), ascending;
// at most 2 log2(n). Empty if begin == end. REQUIRES: 0 <= begin <= end <= n.
std::vector<TreeNode> CompleteNodes(int64_t n, int64_t begin, int64_t end);

// The node's parent, or the parent's other child; none for the root.
// REQUIRES: IsTreeNode(n, node).
std::optional<TreeNode> Parent(int64_t n, const TreeNode& node);
std::optional<TreeNode> Sibling(int64_t n, const TreeNode& node);

// The value of one node: `count` floats that outlive the call.
struct NodeValue {
  TreeNode node;
  const float* data = nullptr;
};

// Evaluates node `root` of a tree, elementwise, from the values of nodes below
// it (or its own): out[i] = sum in tree order of the values' [i].
// out: [count]; it may be one of the values, and overlaps none otherwise.
// REQUIRES: `values` ascending, nodes of the tree, tiling `root` exactly.
void CombineNodes(const TreeNode& root, std::span<const NodeValue> values,
                  int64_t count, float* out);

// The same with one value for each leaf of the tree over values.size() leaves.
// REQUIRES: at least one value.
void CombineLeaves(std::span<const float* const> values, int64_t count,
                   float* out);

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_TREE_H_
