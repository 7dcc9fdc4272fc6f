// What the ranks of a group must agree on in a collective call, and the words
// for calls and ranks that every backend's messages use.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_COMM_COMM_CALL_H_
#define SHARDSHIFT_TRAINER_COMM_COMM_CALL_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "trainer/comm/comm_stats.h"

namespace shardshift::trainer {

// What must be equal on all ranks.
struct CommCall {
  CommKind kind = CommKind::kBarrier;
  int64_t size = 0;                           // bytes, elements or leaves
  int64_t detail = 0;                         // root, or floats a node
  std::span<const int64_t> sizes_bytes = {};  // AllGather: of each rank
};

// Errors: InvalidArgument naming how the calls of two ranks differ, behind
// `where`.
absl::Status CheckSameCall(absl::string_view where, int rank_a,
                           const CommCall& a, int rank_b, const CommCall& b);

// "rank 3", or "ranks 0, 1, 2"; of very many the first.
std::string RankList(std::vector<int> ranks);

// `AllGather in group "tp" of ranks 0, 1`.
std::string DescribeCall(CommKind kind, absl::string_view group,
                         const std::vector<int>& world_ranks);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_COMM_COMM_CALL_H_
