// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/move_plan.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "ckpt/core/status_macros.h"
#include "reshard/layout/content.h"
#include "reshard/layout/holdings.h"
#include "reshard/plan/plan.h"

namespace shardshift::reshard {
namespace {

constexpr int64_t kElementBytes =
    std::ssize(kOptimizerRoles) * int64_t{sizeof(float)};

// How far a rank has come in sending, or in receiving.
struct Progress {
  int64_t round = 0;
  int64_t num_bytes = 0;  // of that round
};

// Takes all moves of all ranks in one order, and keeps those of one.
class Scheduler {
 public:
  Scheduler(int64_t num_ranks, int64_t rank, int64_t round_bytes)
      : rank_(rank),
        round_bytes_(round_bytes),
        sent_(num_ranks),
        received_(num_ranks) {}

  void Add(const HeldPiece& from, const HeldPiece& to, const ckpt::Box& box) {
    if (from.rank == to.rank) {
      if (from.rank == rank_) plan_.moves.push_back({from, to, box});
      return;
    }
    for (const ckpt::Box& part :
         ckpt::SplitRowMajor(box, round_bytes_ / kElementBytes)) {
      const int64_t round =
          Schedule(from.rank, to.rank, ckpt::NumElements(part) * kElementBytes);
      plan_.rounds = std::max(plan_.rounds, round + 1);
      if (from.rank == rank_ || to.rank == rank_) {
        plan_.moves.push_back({from, to, part, round});
      }
    }
  }

  MovePlan Take() {
    std::stable_sort(
        plan_.moves.begin(), plan_.moves.end(),
        [](const Move& a, const Move& b) { return a.round < b.round; });
    return std::move(plan_);
  }

 private:
  // The first round in which both have room, no earlier than what they sent or
  // received last.
  int64_t Schedule(int64_t from, int64_t to, int64_t num_bytes) {
    Progress& sent = sent_[from];
    Progress& received = received_[to];
    const auto is_full = [&](const Progress& progress, int64_t round) {
      return progress.round == round &&
             progress.num_bytes + num_bytes > round_bytes_;
    };
    int64_t round = std::max(sent.round, received.round);
    if (is_full(sent, round) || is_full(received, round)) ++round;
    for (Progress* progress : {&sent, &received}) {
      if (progress->round < round) *progress = {round, 0};
      progress->num_bytes += num_bytes;
    }
    return round;
  }

  int64_t rank_;
  int64_t round_bytes_;
  std::vector<Progress> sent_;  // by rank
  std::vector<Progress> received_;
  MovePlan plan_;
};

// Every rank's own, in order of the holdings.
std::vector<HeldPiece> HeldPieces(const Replicas& replicas) {
  std::vector<HeldPiece> held;
  for (const Holding& holding : replicas) {
    for (int64_t i = 0; i < holding.ranks.count; ++i) {
      held.push_back({holding.ranks.first + i * holding.ranks.stride,
                      holding.buffer, holding.piece});
    }
  }
  return held;
}

// By tensor of the model, which has num_tensors.
std::vector<std::vector<Replicas>> ByTensor(
    const std::vector<Holding>& holdings, size_t num_tensors) {
  std::vector<std::vector<Replicas>> tensors(num_tensors);
  for (const Replicas& replicas : GroupByBox(holdings)) {
    tensors[replicas[0].piece.tensor].push_back(replicas);
  }
  return tensors;
}

std::vector<ckpt::Box> BoxesOf(const std::vector<Replicas>& held) {
  std::vector<ckpt::Box> boxes;
  boxes.reserve(held.size());
  for (const Replicas& replicas : held) boxes.push_back(replicas[0].piece.box);
  return boxes;
}

class SourceChoice {
 public:
  explicit SourceChoice(int64_t num_ranks) : sent_(num_ranks, 0) {}

  // One of `replicas` for `num_elements` that go to rank `to`.
  const HeldPiece& Choose(const std::vector<HeldPiece>& replicas, int64_t to,
                          int64_t num_elements) {
    const HeldPiece* best = nullptr;
    for (const HeldPiece& held : replicas) {
      if (held.rank == to) return held;
      if (best == nullptr || std::tie(sent_[held.rank], held.rank) <
                                 std::tie(sent_[best->rank], best->rank)) {
        best = &held;
      }
    }
    sent_[best->rank] += num_elements;
    return *best;
  }

 private:
  std::vector<int64_t> sent_;  // elements, by rank
};

}  // namespace

absl::StatusOr<MovePlan> PlanMoves(const ModelConfig& model, const Layout& from,
                                   const Layout& to, int64_t rank,
                                   int64_t round_bytes) {
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  const std::vector<Holding> source_holdings = HoldingsOf(model, from);
  const std::vector<Holding> target_holdings = HoldingsOf(model, to);
  const auto sources = ByTensor(source_holdings, tensors.size());
  const auto targets = ByTensor(target_holdings, tensors.size());
  const int64_t num_ranks = std::max(from.world_size(), to.world_size());
  Scheduler scheduler(num_ranks, rank, round_bytes);
  SourceChoice choice(num_ranks);
  for (size_t t = 0; t < tensors.size(); ++t) {
    const absl::StatusOr<std::vector<BoxCopy>> copies =
        PlanCopies(BoxesOf(sources[t]), BoxesOf(targets[t]));
    if (!copies.ok()) return Annotate(copies.status(), tensors[t].name);
    std::vector<std::vector<HeldPiece>> replicas;
    for (const Replicas& held : sources[t]) {
      replicas.push_back(HeldPieces(held));
    }
    for (const BoxCopy& copy : *copies) {
      for (const HeldPiece& target : HeldPieces(targets[t][copy.target])) {
        scheduler.Add(choice.Choose(replicas[copy.source], target.rank,
                                    ckpt::NumElements(copy.box)),
                      target, copy.box);
      }
    }
  }
  return scheduler.Take();
}

MovePlan PlanComparisons(const ModelConfig& model, const Layout& layout,
                         int64_t rank, int64_t round_bytes) {
  Scheduler scheduler(layout.world_size(), rank, round_bytes);
  const std::vector<Holding> holdings = HoldingsOf(model, layout);
  for (const Replicas& replicas : GroupByBox(holdings)) {
    const std::vector<HeldPiece> held = HeldPieces(replicas);
    for (size_t i = 1; i < held.size(); ++i) {
      scheduler.Add(held[i - 1], held[i], held[i].piece.box);
    }
  }
  return scheduler.Take();
}

}  // namespace shardshift::reshard
