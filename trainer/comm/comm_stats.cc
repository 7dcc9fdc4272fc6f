// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/comm_stats.h"

namespace shardshift::trainer {

const char* CommKindName(CommKind kind) {
  switch (kind) {
    case CommKind::kBarrier:
      return "Barrier";
    case CommKind::kBroadcast:
      return "Broadcast";
    case CommKind::kAllGather:
      return "AllGather";
    case CommKind::kAllReduceMax:
      return "AllReduceMax";
    case CommKind::kAllReduceSum:
      return "AllReduceSum";
    case CommKind::kTreeReduceScatter:
      return "TreeReduceScatter";
    case CommKind::kTreeAllReduce:
      return "TreeAllReduce";
    case CommKind::kAllToAll:
      return "AllToAll";
    case CommKind::kSend:
      return "Send";
    case CommKind::kRecv:
      return "Recv";
    case CommKind::kSplit:
      return "Split";
    case CommKind::kOnFirstRank:
      return "OnFirstRank";
  }
  return "unknown";
}

}  // namespace shardshift::trainer
