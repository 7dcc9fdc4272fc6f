// SPDX-License-Identifier: Apache-2.0
#include "kernels/tree.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>

namespace shardshift::kernels {
namespace {

// Elements of one value that are combined before going on to the next ones: the
// temporaries of a deep tree then stay in the first-level cache.
constexpr int64_t kBlock = 1024;
using Block = std::array<float, kBlock>;

// Appends the maximal nodes at or below `node` that lie inside [begin,end).
void CollectNodes(const TreeNode& node, int64_t begin, int64_t end,
                  std::vector<TreeNode>& nodes) {
  if (node.end <= begin || end <= node.begin) return;
  if (begin <= node.begin && node.end <= end) {
    nodes.push_back(node);
    return;
  }
  const int64_t split = SplitPoint(node);
  CollectNodes({node.begin, split}, begin, end, nodes);
  CollectNodes({split, node.end}, begin, end, nodes);
}

struct Family {
  TreeNode parent;
  TreeNode sibling;
};

std::optional<Family> FindFamily(int64_t n, const TreeNode& node) {
  assert(IsTreeNode(n, node));
  TreeNode parent = {0, n};
  while (parent != node) {
    const int64_t split = SplitPoint(parent);
    const TreeNode left = {parent.begin, split};
    const TreeNode right = {split, parent.end};
    if (left == node) return Family{parent, right};
    if (right == node) return Family{parent, left};
    parent = node.begin < split ? left : right;
  }
  return std::nullopt;
}

// Adds up elements [offset, offset + count) of `node` into `out`.
void CombineBlock(const TreeNode& node, std::span<const NodeValue> values,
                  int64_t offset, int64_t count, float* out) {
  if (values.size() == 1) {
    assert(values[0].node == node);
    std::copy_n(values[0].data + offset, count, out);
    return;
  }
  const int64_t split = SplitPoint(node);
  const auto right = std::partition_point(
      values.begin(), values.end(),
      [split](const NodeValue& value) { return value.node.begin < split; });
  const auto num_left = static_cast<size_t>(right - values.begin());
  Block right_sum;
  CombineBlock({node.begin, split}, values.first(num_left), offset, count, out);
  CombineBlock({split, node.end}, values.subspan(num_left), offset, count,
               right_sum.data());
  for (int64_t i = 0; i < count; ++i) out[i] = out[i] + right_sum[i];
}

}  // namespace

int64_t SplitPoint(const TreeNode& node) {
  const auto leaves = static_cast<uint64_t>(node.end - node.begin);
  assert(leaves >= 2);
  return node.begin + static_cast<int64_t>(std::bit_floor(leaves - 1));
}

bool IsTreeNode(int64_t n, const TreeNode& node) {
  if (node.begin < 0 || node.begin >= node.end || node.end > n) return false;
  return CompleteNodes(n, node.begin, node.end).size() == 1;
}

std::vector<TreeNode> CompleteNodes(int64_t n, int64_t begin, int64_t end) {
  std::vector<TreeNode> nodes;
  if (begin < end) CollectNodes({0, n}, begin, end, nodes);
  return nodes;
}

std::optional<TreeNode> Parent(int64_t n, const TreeNode& node) {
  const std::optional<Family> family = FindFamily(n, node);
  if (!family.has_value()) return std::nullopt;
  return family->parent;
}

std::optional<TreeNode> Sibling(int64_t n, const TreeNode& node) {
  const std::optional<Family> family = FindFamily(n, node);
  if (!family.has_value()) return std::nullopt;
  return family->sibling;
}

void CombineNodes(const TreeNode& root, std::span<const NodeValue> values,
                  int64_t count, float* out) {
  // Through a block of its own, so that `out` may be any of the values.
  Block sum;
  for (int64_t offset = 0; offset < count; offset += kBlock) {
    const int64_t block = std::min(kBlock, count - offset);
    CombineBlock(root, values, offset, block, sum.data());
    std::copy_n(sum.data(), block, out + offset);
  }
}

void CombineLeaves(std::span<const float* const> values, int64_t count,
                   float* out) {
  std::vector<NodeValue> leaves;
  for (const float* value : values) {
    const auto leaf = static_cast<int64_t>(leaves.size());
    leaves.push_back({{leaf, leaf + 1}, value});
  }
  CombineNodes({0, static_cast<int64_t>(leaves.size())}, leaves, count, out);
}

}  // namespace shardshift::kernels
