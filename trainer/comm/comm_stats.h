// Counts of a communicator's calls, so that tests can state what a layer
// communicates.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_COMM_COMM_STATS_H_
#define SHARDSHIFT_TRAINER_COMM_COMM_STATS_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace shardshift::trainer {

enum class CommKind {
  kBarrier,
  kBroadcast,
  kAllGather,
  kAllReduceMax,
  kAllReduceSum,
  kTreeReduceScatter,
  kTreeAllReduce,
  kAllToAll,
  kSend,
  kRecv,
  kSplit,
  kOnFirstRank,
};
inline constexpr int kNumCommKinds = 12;

// "TreeAllReduce" and so on.
const char* CommKindName(CommKind kind);

// Calls of one rank by kind. Bytes are the payload the rank contributes: 0 for
// a broadcast from elsewhere; a Recv counts what it receives. Groups of one
// count like any other.
class CommStats {
 public:
  struct Count {
    int64_t calls = 0;
    int64_t bytes = 0;
    bool operator==(const Count&) const = default;
  };

  const Count& of(CommKind kind) const {
    return counts_[static_cast<size_t>(kind)];
  }

  void Add(CommKind kind, int64_t bytes) {
    Count& count = counts_[static_cast<size_t>(kind)];
    ++count.calls;
    count.bytes += bytes;
  }

 private:
  std::array<Count, kNumCommKinds> counts_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_COMM_COMM_STATS_H_
