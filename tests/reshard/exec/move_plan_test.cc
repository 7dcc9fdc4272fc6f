// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/move_plan.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "reshard/layout/rank_state.h"
#include "tests/reshard/oracle.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using Element = std::pair<int64_t, int64_t>;  // tensor, row-major index

int64_t BytesOf(const Move& move) {
  return ckpt::NumElements(move.box) * 3 * 4;
}

std::set<Element> OwnedBy(const ModelConfig& model, const Layout& layout,
                          int64_t rank) {
  std::set<Element> elements;
  if (rank >= layout.world_size()) return elements;
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  for (const LocalBuffer& buffer : MakeRankState(model, layout, rank).buffers) {
    for (const Piece& piece : buffer.pieces) {
      const ckpt::Box whole = ckpt::WholeBox(tensors[piece.tensor].shape);
      for (const int64_t i : ElementsOf(whole, piece.box)) {
        elements.emplace(piece.tensor, i);
      }
    }
  }
  return elements;
}

struct Plans {
  ModelConfig model;
  Layout from;
  Layout to;
  std::vector<MovePlan> of_rank;
};

Plans RandomPlans(uint32_t seed, int64_t round_bytes) {
  std::mt19937 random(seed);
  Plans plans;
  plans.model = RandomMixture(random);
  plans.from = RandomWideLayout(plans.model, random);
  plans.to = RandomWideLayout(plans.model, random);
  const int64_t ranks =
      std::max(plans.from.world_size(), plans.to.world_size());
  for (int64_t rank = 0; rank < ranks; ++rank) {
    auto plan = PlanMoves(plans.model, plans.from, plans.to, rank, round_bytes);
    EXPECT_OK(plan.status());
    plans.of_rank.push_back(*std::move(plan));
  }
  return plans;
}

constexpr int64_t kSmallRound = 600;

TEST(PlanMoves, FillsEveryElementOnceFromTheRankItselfWhereItCan) {
  for (uint32_t seed = 800; seed < 812; ++seed) {
    SCOPED_TRACE(seed);
    const Plans plans = RandomPlans(seed, kSmallRound);
    const std::vector<LogicalTensor> tensors = LogicalTensors(plans.model);
    for (int64_t rank = 0; rank < std::ssize(plans.of_rank); ++rank) {
      const std::set<Element> before = OwnedBy(plans.model, plans.from, rank);
      std::set<Element> filled;
      for (const Move& move : plans.of_rank[rank].moves) {
        if (move.to.rank != rank) continue;
        const int64_t tensor = move.to.piece.tensor;
        ASSERT_EQ(move.from.piece.tensor, tensor);
        ASSERT_TRUE(ckpt::Contains(move.from.piece.box, move.box));
        ASSERT_TRUE(ckpt::Contains(move.to.piece.box, move.box));
        const ckpt::Box whole = ckpt::WholeBox(tensors[tensor].shape);
        for (const int64_t i : ElementsOf(whole, move.box)) {
          EXPECT_TRUE(filled.emplace(tensor, i).second) << "filled twice";
        }
      }
      EXPECT_EQ(filled, OwnedBy(plans.model, plans.to, rank));
    }
  }
}

TEST(PlanMoves, KeepsRoundsSmallAndBothSidesAgreeOnThem) {
  for (uint32_t seed = 820; seed < 832; ++seed) {
    SCOPED_TRACE(seed);
    const Plans plans = RandomPlans(seed, kSmallRound);
    using Message = std::tuple<int64_t, int64_t, int64_t>;  // round, from, to
    std::map<Message, std::vector<ckpt::Box>> sent;
    std::map<Message, std::vector<ckpt::Box>> received;
    for (int64_t rank = 0; rank < std::ssize(plans.of_rank); ++rank) {
      const MovePlan& plan = plans.of_rank[rank];
      EXPECT_EQ(plan.rounds, plans.of_rank[0].rounds);
      std::map<int64_t, int64_t> sent_bytes;
      std::map<int64_t, int64_t> received_bytes;
      int64_t last_round = 0;
      for (const Move& move : plan.moves) {
        EXPECT_LE(last_round, move.round);
        last_round = move.round;
        if (move.from.rank == move.to.rank) continue;
        EXPECT_LT(move.round, plan.rounds);
        const Message message = {move.round, move.from.rank, move.to.rank};
        if (move.from.rank == rank) {
          sent[message].push_back(move.box);
          sent_bytes[move.round] += BytesOf(move);
        } else {
          ASSERT_EQ(move.to.rank, rank);
          received[message].push_back(move.box);
          received_bytes[move.round] += BytesOf(move);
        }
      }
      for (const auto& of_round : {sent_bytes, received_bytes}) {
        for (const auto& [round, bytes] : of_round) {
          EXPECT_LE(bytes, kSmallRound);
        }
      }
    }
    EXPECT_EQ(sent, received);
  }
}

TEST(PlanMoves, SharesTheSendingAmongReplicas) {
  const ModelConfig model = GptModel();
  const Layout from = {.data = 4};
  const Layout to = {.data = 8};
  std::map<int64_t, int64_t> sent;
  int64_t largest = 0;
  for (int64_t rank = 0; rank < 4; ++rank) {
    ASSERT_OK_AND_ASSIGN(const MovePlan plan,
                         PlanMoves(model, from, to, rank, 1 << 20));
    for (const Move& move : plan.moves) {
      if (move.to.rank < 4) {
        EXPECT_EQ(move.from.rank, move.to.rank);
        continue;
      }
      sent[rank] += BytesOf(move);
      largest = std::max(largest, BytesOf(move));
    }
  }
  ASSERT_EQ(sent.size(), 4);
  const auto by_bytes = [](const auto& a, const auto& b) {
    return a.second < b.second;
  };
  const auto [least, most] =
      std::minmax_element(sent.begin(), sent.end(), by_bytes);
  EXPECT_LE(most->second - least->second, largest);
}

TEST(PlanComparisons, BringsEveryReplicaToTheNext) {
  const ModelConfig model = GptModel();
  const Layout layout = {.data = 3};
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  for (int64_t rank = 0; rank < 3; ++rank) {
    const MovePlan plan = PlanComparisons(model, layout, rank, kSmallRound);
    int64_t compared = 0;
    for (const Move& move : plan.moves) {
      EXPECT_EQ(move.from.rank + 1, move.to.rank);
      if (move.to.rank == rank) compared += ckpt::NumElements(move.box);
    }
    EXPECT_EQ(compared, rank == 0 ? 0 : std::ssize(OwnedBy(model, layout, 0)));
  }
}

}  // namespace
}  // namespace shardshift::reshard
