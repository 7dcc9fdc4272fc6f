// The tree sum over nodes gathered from several ranks.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_COMM_TREE_SUM_H_
#define SHARDSHIFT_TRAINER_COMM_TREE_SUM_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "trainer/comm/communicator.h"

namespace shardshift::trainer {

inline constexpr int64_t kFloatBytes = sizeof(float);

// out[0, end - begin) = elements [begin, end) of the sum of `nodes`, in any
// order, that tile the tree over `leaves`. `out` may be data + begin of one.
// Errors: InvalidArgument naming a leaf that no node or two nodes hold, or a
// range of leaves that is no node.
absl::Status SumTree(int64_t leaves, std::vector<TreeBuffer> nodes,
                     int64_t begin, int64_t end, float* out);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_COMM_TREE_SUM_H_
