// Which rank sends what to which, and when: the plan of MemoryToMemory. Pure
// functions, which every rank evaluates alike; each keeps what concerns it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_MOVE_PLAN_H_
#define SHARDSHIFT_RESHARD_EXEC_MOVE_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ckpt/core/box.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/model_config.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

// A piece in the memory of one rank.
struct HeldPiece {
  int64_t rank = 0;
  int64_t buffer = 0;  // index into RankState::buffers
  Piece piece;
};

// The elements of `box`, under every role.
struct Move {
  HeldPiece from;
  HeldPiece to;
  ckpt::Box box;
  int64_t round = 0;  // when it is sent; 0 if both are one rank
};

struct MovePlan {
  std::vector<Move> moves;  // by round; of one round alike on both sides
  int64_t rounds = 0;       // of all ranks
};

// For every piece of every rank of `to` the moves that fill it, each element
// from one of its replicas in `from`: from the rank itself if it has one, else
// from the one that has sent the fewest bytes so far, ties to the lowest rank.
// No rank sends, or receives, more than `round_bytes` in a round. Kept are the
// moves from and to `rank`.
// REQUIRES: both layouts are valid for the model; round_bytes has room for an
// element under every role.
// Errors: DataLoss naming the tensor if `from` does not hold it once and whole.
absl::StatusOr<MovePlan> PlanMoves(const ModelConfig& model, const Layout& from,
                                   const Layout& to, int64_t rank,
                                   int64_t round_bytes);

// Moves that bring each replica to the next of its box, which compares them.
// The rest as above.
MovePlan PlanComparisons(const ModelConfig& model, const Layout& layout,
                         int64_t rank, int64_t round_bytes);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_MOVE_PLAN_H_
