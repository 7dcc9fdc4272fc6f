// Whether ranks that hold the same weights hold the same bits: data-parallel
// replicas, those of experts, what tensor-parallel ranks share, and the two
// copies of a tied embedding; and the master weights that they have in common.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_REPLICA_CHECK_H_
#define SHARDSHIFT_TRAINER_REPLICA_CHECK_H_

#include "absl/status/status.h"
#include "trainer/mesh.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parameters.h"

namespace shardshift::trainer {

// Compares a hash of each parameter. Collective over the world. Cost: one pass
// over the weights, and 8 bytes a parameter and rank.
// Errors: DataLoss naming the first parameter that differs, and two ranks.
absl::Status CheckReplicas(Mesh& mesh, const Parameters& parameters,
                           const Optimizer& optimizer);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_REPLICA_CHECK_H_
