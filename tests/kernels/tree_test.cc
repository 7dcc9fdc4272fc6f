// SPDX-License-Identifier: Apache-2.0
#include "kernels/tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/kernel_test.h"

namespace shardshift::kernels {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::vector<float>> Leaves(int64_t n, int64_t count) {
  std::vector<std::vector<float>> leaves;
  for (int64_t i = 0; i < n; ++i) {
    leaves.push_back(Normals(testing::PrintToString(i), count));
  }
  return leaves;
}

// Level by level: neighbours are added, an odd last node waits. For a count
// that is no power of two this is the same tree as the recursive one.
float SumByLevels(std::vector<float> level) {
  while (level.size() > 1) {
    std::vector<float> next;
    for (size_t i = 0; i + 1 < level.size(); i += 2) {
      next.push_back(level[i] + level[i + 1]);
    }
    if (level.size() % 2 == 1) next.push_back(level.back());
    level = next;
  }
  return level[0];
}

std::vector<float> Combine(const std::vector<std::vector<float>>& leaves,
                           const TreeNode& root) {
  std::vector<NodeValue> values;
  for (int64_t i = root.begin; i < root.end; ++i) {
    values.push_back({{i, i + 1}, leaves[i].data()});
  }
  std::vector<float> out(leaves[0].size());
  CombineNodes(root, values, static_cast<int64_t>(out.size()), out.data());
  return out;
}

TEST(CompleteNodes, AreTheMaximalNodesOfARun) {
  EXPECT_THAT(CompleteNodes(8, 0, 8), ElementsAre(TreeNode{0, 8}));
  EXPECT_THAT(CompleteNodes(8, 1, 7),
              ElementsAre(TreeNode{1, 2}, TreeNode{2, 4}, TreeNode{4, 6},
                          TreeNode{6, 7}));
  // 12 leaves: 8 + 4. Leaves 3..11 of it.
  EXPECT_THAT(CompleteNodes(12, 3, 12),
              ElementsAre(TreeNode{3, 4}, TreeNode{4, 8}, TreeNode{8, 12}));
  EXPECT_THAT(CompleteNodes(5, 2, 2), IsEmpty());
  // In a tree of 3 leaves the last two are not siblings.
  EXPECT_THAT(CompleteNodes(3, 1, 3),
              ElementsAre(TreeNode{1, 2}, TreeNode{2, 3}));
}

TEST(CompleteNodes, TileEveryRunWithFewNodes) {
  for (int64_t n = 1; n <= 48; ++n) {
    for (int64_t begin = 0; begin <= n; ++begin) {
      for (int64_t end = begin; end <= n; ++end) {
        const std::vector<TreeNode> nodes = CompleteNodes(n, begin, end);
        EXPECT_LE(nodes.size(), 10U);
        int64_t at = begin;
        for (const TreeNode& node : nodes) {
          EXPECT_EQ(node.begin, at);
          EXPECT_TRUE(IsTreeNode(n, node));
          at = node.end;
        }
        EXPECT_EQ(at, end);
      }
    }
  }
}

TEST(TreeRelations, ParentAndSiblingBelongTogether) {
  EXPECT_EQ(Parent(12, {8, 10}), (TreeNode{8, 12}));
  EXPECT_EQ(Sibling(12, {8, 10}), (TreeNode{10, 12}));
  EXPECT_EQ(Sibling(12, {8, 12}), (TreeNode{0, 8}));
  EXPECT_EQ(Parent(5, {4, 5}), (TreeNode{0, 5}));
  EXPECT_EQ(Sibling(5, {4, 5}), (TreeNode{0, 4}));
  EXPECT_EQ(Parent(12, {0, 12}), std::nullopt);
  EXPECT_EQ(Sibling(1, {0, 1}), std::nullopt);
}

TEST(IsTreeNode, RejectsRunsThatCrossASplit) {
  EXPECT_TRUE(IsTreeNode(8, {4, 6}));
  EXPECT_FALSE(IsTreeNode(8, {3, 5}));
  EXPECT_FALSE(IsTreeNode(8, {4, 4}));
  EXPECT_FALSE(IsTreeNode(8, {4, 9}));
}

TEST(CombineNodes, AddsNeighboursFirst) {
  for (int64_t n = 1; n <= 48; ++n) {
    const auto leaves = Leaves(n, 3);
    const std::vector<float> sum = Combine(leaves, {0, n});
    for (int64_t i = 0; i < 3; ++i) {
      std::vector<float> level;
      level.reserve(leaves.size());
      for (const auto& leaf : leaves) level.push_back(leaf[i]);
      EXPECT_EQ(sum[i], SumByLevels(level)) << n;
    }
  }
}

TEST(CombineNodes, DoesNotDependOnHowLeavesAreSplitOverOwners) {
  for (int64_t n = 1; n <= 24; ++n) {
    const auto leaves = Leaves(n, 2);
    const std::vector<float> expected = Combine(leaves, {0, n});
    for (int64_t first = 0; first <= n; ++first) {
      for (int64_t second = first; second <= n; ++second) {
        std::vector<std::vector<float>> data;
        std::vector<TreeNode> nodes;
        for (const auto& [begin, end] :
             {std::pair{int64_t{0}, first}, {first, second}, {second, n}}) {
          for (const TreeNode& node : CompleteNodes(n, begin, end)) {
            nodes.push_back(node);
            data.push_back(Combine(leaves, node));
          }
        }
        std::vector<NodeValue> values;
        for (size_t i = 0; i < nodes.size(); ++i) {
          values.push_back({nodes[i], data[i].data()});
        }
        std::vector<float> sum(2);
        CombineNodes({0, n}, values, 2, sum.data());
        EXPECT_EQ(Bits(sum), Bits(expected))
            << n << " " << first << " " << second;
      }
    }
  }
}

TEST(CombineNodes, MayWriteOverAnyOfItsValues) {
  // More than one block of the implementation.
  const auto leaves = Leaves(3, 2500);
  const std::vector<float> expected = Combine(leaves, {0, 3});
  for (int64_t target = 0; target < 3; ++target) {
    auto copy = leaves;
    const std::vector<const float*> data = {copy[0].data(), copy[1].data(),
                                            copy[2].data()};
    CombineLeaves(data, 2500, copy[target].data());
    EXPECT_EQ(Bits(copy[target]), Bits(expected)) << target;
  }
}

}  // namespace
}  // namespace shardshift::kernels
