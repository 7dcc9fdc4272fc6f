// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/write_assignment.h"

#include <algorithm>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "reshard/layout/parameters.h"
#include "reshard/layout/rank_state.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::Each;

std::vector<int64_t> Loads(const std::vector<std::vector<WriteItem>>& items) {
  std::vector<int64_t> loads;
  for (const std::vector<WriteItem>& list : items) {
    int64_t load = 0;
    for (const WriteItem& item : list) load += ckpt::NumElements(item.box);
    loads.push_back(load);
  }
  return loads;
}

TEST(AssignWriters, WritesEveryElementOfEveryRoleExactlyOnce) {
  for (uint32_t seed = 300; seed < 340; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const ModelConfig model = RandomModel(random);
    const Layout layout = RandomLayout(model, random);
    const std::vector<LogicalTensor> tensors = LogicalTensors(model);
    std::vector<std::vector<int64_t>> writes[3];
    for (auto& of_role : writes) {
      for (const LogicalTensor& tensor : tensors) {
        of_role.emplace_back(ckpt::NumElements(tensor.shape), 0);
      }
    }
    for (const std::vector<WriteItem>& list : AssignWriters(model, layout)) {
      for (const WriteItem& item : list) {
        const ckpt::Box whole = ckpt::WholeBox(tensors[item.tensor].shape);
        for (const int64_t element : ElementsOf(whole, item.box)) {
          ++writes[item.role][item.tensor].at(element);
        }
      }
    }
    for (const auto& of_role : writes) {
      for (const std::vector<int64_t>& counts : of_role) {
        EXPECT_THAT(counts, Each(1)) << ToString(layout);
      }
    }
  }
}

TEST(AssignWriters, GivesARankOnlyBoxesThatItOwnsInOrder) {
  for (uint32_t seed = 400; seed < 420; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const ModelConfig model = RandomModel(random);
    const Layout layout = RandomLayout(model, random);
    const auto items = AssignWriters(model, layout);
    ASSERT_EQ(static_cast<int64_t>(items.size()), layout.world_size());
    for (int64_t rank = 0; rank < layout.world_size(); ++rank) {
      std::set<std::pair<int64_t, ckpt::Box>> owned;
      const RankState state = MakeRankState(model, layout, rank);
      for (const LocalBuffer& buffer : state.buffers) {
        for (const Piece& piece : buffer.pieces) {
          owned.emplace(piece.tensor, piece.box);
        }
      }
      for (const WriteItem& item : items[rank]) {
        EXPECT_TRUE(owned.contains({item.tensor, item.box}));
      }
      EXPECT_TRUE(std::is_sorted(items[rank].begin(), items[rank].end(),
                                 [](const WriteItem& a, const WriteItem& b) {
                                   return std::tie(a.tensor, a.role, a.box) <
                                          std::tie(b.tensor, b.role, b.box);
                                 }));
    }
  }
}

TEST(AssignWriters, DiffersBetweenReplicasByAtMostTheLargestBox) {
  for (const int64_t data : {2, 3, 4, 7}) {
    const ModelConfig model = GptModel();
    const auto loads = Loads(AssignWriters(model, {.data = data}));
    const auto [min, max] = std::minmax_element(loads.begin(), loads.end());
    EXPECT_LE(*max - *min, 251 * 16) << data;
    EXPECT_GT(*min, 0);
  }
}

TEST(AssignWriters, EvensOutManySmallBoxes) {
  ModelConfig model = GptModel();
  model.num_layers = 12;
  const auto loads = Loads(AssignWriters(model, {.tensor = 2, .data = 4}));
  const auto [min, max] = std::minmax_element(loads.begin(), loads.end());
  EXPECT_LT(*max - *min, *max / 20);
}

TEST(AssignWriters, BreaksTiesByRoleAndLowestRank) {
  // The embedding is the largest tensor; its three roles are equally large.
  const auto items = AssignWriters(GptModel(), {.data = 3});
  for (int64_t rank = 0; rank < 3; ++rank) {
    const WriteItem& first = items[rank][0];
    EXPECT_EQ(first.tensor, 0);
    EXPECT_EQ(first.role, rank);
  }
}

TEST(AssignWriters, CountsBoxesOfOneHolderFirst) {
  // All but the norms lies on one rank only: replicas go where less lies.
  const ModelConfig model = LlamaModel();
  const Layout layout = {.tensor = 2};
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  const auto items = AssignWriters(model, layout);
  // Rank 1 has 5 rows of the padded vocabulary fewer, twice, in each role:
  // 480 elements. The norms are 3 * 9 vectors of 16 elements.
  int64_t norms[2] = {0, 0};
  for (size_t rank = 0; rank < 2; ++rank) {
    for (const WriteItem& item : items[rank]) {
      if (tensors[item.tensor].shape.size() == 1) ++norms[rank];
    }
  }
  EXPECT_EQ(norms[0], 0);
  EXPECT_EQ(norms[1], 27);
}

TEST(AssignWriters, IsTheSameForTheSameInput) {
  const Layout layout = {.tensor = 2, .pipeline = 2, .data = 2};
  EXPECT_EQ(AssignWriters(GptModel(), layout),
            AssignWriters(GptModel(), layout));
}

}  // namespace
}  // namespace shardshift::reshard
