// Sums are written down instead of computed: two orders are equal exactly if
// they give the same text.
// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/sample_tree.h"

#include <gmock/gmock.h>

#include <bit>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/random.h"

namespace shardshift::trainer {
namespace {

using kernels::TreeNode;

// The sums that ranks hold, by node.
using Sums = std::map<std::pair<int64_t, int64_t>, std::string>;

std::string Plus(const std::string& a, const std::string& b) {
  return absl::StrCat("(", a, "+", b, ")");
}

// The sum of `node` from the nodes in `sums`, or from single groups.
std::string SumOf(const TreeNode& node, const Sums& sums) {
  const auto it = sums.find({node.begin, node.end});
  if (it != sums.end()) return it->second;
  if (node.end - node.begin == 1) return "missing";
  const int64_t split = kernels::SplitPoint(node);
  return Plus(SumOf({node.begin, split}, sums), SumOf({split, node.end}, sums));
}

// Each group a chain, the groups a tree.
std::string Canonical(int64_t groups, int64_t samples_per_group) {
  Sums leaves;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t first = group * samples_per_group;
    std::string chain = absl::StrCat(first);
    for (int64_t i = 1; i < samples_per_group; ++i) {
      chain = Plus(chain, absl::StrCat(first + i));
    }
    leaves[{group, group + 1}] = chain;
  }
  return SumOf({0, groups}, leaves);
}

// Follows the visits of one rank, and adds the nodes it is left with.
void Evaluate(const SampleTree& tree, int64_t first_sample, Sums& sums) {
  std::vector<std::string> slots;
  for (int64_t i = 0; i < tree.num_samples(); ++i) {
    const SampleTree::Visit& visit = tree.At(i);
    const std::string sample = absl::StrCat(first_sample + i);
    if (visit.opens_group) {
      ASSERT_EQ(visit.slot, slots.size()) << "opened a slot in use";
      slots.push_back(sample);
    } else {
      ASSERT_EQ(visit.slot + 1, slots.size());
      slots.back() = Plus(slots.back(), sample);
    }
    ASSERT_LE(slots.size(), tree.num_slots());
    ASSERT_TRUE(visit.closes_group || visit.merges == 0);
    for (int64_t merge = 0; merge < visit.merges; ++merge) {
      const std::string top = slots.back();
      slots.pop_back();
      slots.back() = Plus(slots.back(), top);
    }
  }
  ASSERT_EQ(slots.size(), tree.nodes().size());
  for (size_t i = 0; i < slots.size(); ++i) {
    sums[{tree.nodes()[i].begin, tree.nodes()[i].end}] = slots[i];
  }
}

// Ranks hold the runs of groups between consecutive `borders`.
void ExpectCanonical(const std::vector<int64_t>& borders,
                     int64_t samples_per_group) {
  const int64_t groups = borders.back();
  Sums sums;
  for (size_t rank = 0; rank + 1 < borders.size(); ++rank) {
    const SampleTree tree(groups, samples_per_group, borders[rank],
                          borders[rank + 1]);
    EXPECT_EQ(tree.num_samples(),
              samples_per_group * (borders[rank + 1] - borders[rank]));
    ASSERT_NO_FATAL_FAILURE(
        Evaluate(tree, borders[rank] * samples_per_group, sums));
  }
  EXPECT_EQ(SumOf({0, groups}, sums), Canonical(groups, samples_per_group));
}

TEST(SampleTree, SumsFourGroupsLikeABinaryCounter) {
  Sums sums;
  Evaluate(SampleTree(4, 1, 0, 4), 0, sums);
  EXPECT_EQ(SumOf({0, 4}, sums), "((0+1)+(2+3))");
  sums.clear();
  Evaluate(SampleTree(2, 3, 0, 2), 0, sums);
  EXPECT_EQ(SumOf({0, 2}, sums), "(((0+1)+2)+((3+4)+5))");
}

TEST(SampleTree, IsCanonicalForTwelveGroupsOnAnyDivisorOfRanks) {
  for (const int64_t ranks : {1, 2, 3, 4, 6, 12}) {
    std::vector<int64_t> borders;
    for (int64_t rank = 0; rank <= ranks; ++rank) {
      borders.push_back(rank * 12 / ranks);
    }
    ExpectCanonical(borders, 2);
  }
}

TEST(SampleTree, IsCanonicalForRandomGroupsAndRuns) {
  const uint64_t key = kernels::RandomKey(1, "runs");
  uint64_t draws = 0;
  // 1 to `most`.
  const auto draw = [&](int64_t most) {
    return 1 + static_cast<int64_t>(kernels::RandomBits(key, draws++) %
                                    static_cast<uint64_t>(most));
  };
  for (int trial = 0; trial < 500; ++trial) {
    const int64_t groups = draw(40);
    const int64_t samples = draw(3);
    std::vector<int64_t> borders = {0};
    while (borders.back() < groups) {
      borders.push_back(borders.back() + draw(groups - borders.back()));
    }
    ExpectCanonical(borders, samples);
  }
}

TEST(SampleTree, NeedsOneSlotMoreThanTheDepthOfAWholeTree) {
  for (int64_t groups = 1; groups <= 64; groups *= 2) {
    EXPECT_EQ(SampleTree(groups, 2, 0, groups).num_slots(),
              std::bit_width(static_cast<uint64_t>(groups)));
    EXPECT_EQ(SampleTree(groups, 2, 0, 1).num_slots(), 1);
  }
}

TEST(SampleTree, LeavesSeveralNodesWhereARunIsNoSubtree) {
  // 12 groups are a tree over 8 and one over 4; ranks 0 and 1 of two meet
  // inside the first.
  EXPECT_THAT(SampleTree(12, 1, 0, 6).nodes(),
              ::testing::ElementsAre(TreeNode{0, 4}, TreeNode{4, 6}));
  EXPECT_THAT(SampleTree(12, 1, 6, 12).nodes(),
              ::testing::ElementsAre(TreeNode{6, 8}, TreeNode{8, 12}));
}

}  // namespace
}  // namespace shardshift::trainer
