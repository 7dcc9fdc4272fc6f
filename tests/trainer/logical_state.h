// Weights and optimizer state of all ranks as whole logical tensors, so that
// tests of the trainer need not know layouts.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_TRAINER_LOGICAL_STATE_H_
#define SHARDSHIFT_TESTS_TRAINER_LOGICAL_STATE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/layout/content.h"
#include "reshard/layout/model_config.h"
#include "trainer/mesh.h"
#include "trainer/rank_model.h"

namespace shardshift::trainer {

// By position in reshard::LogicalTensors, row-major.
using LogicalValues = std::vector<std::vector<float>>;

// Weights far from their initial values: norms other than 1, biases other than
// 0, attention that is not uniform.
LogicalValues RandomWeights(const reshard::ModelConfig& model);

// Sets one role of the optimizer state (an index into kOptimizerRoles), and
// with the master weights those that ranks compute with. Padding stays 0.
// Collective.
absl::Status SetState(const LogicalValues& values, const RunConfig& config,
                      RankModel& model, int64_t role);

// One role of the optimizer state of all ranks, on every rank. Collective.
// Errors: DataLoss if two holders of an element differ, or one has no holder.
absl::StatusOr<LogicalValues> GatherState(const RunConfig& config, Mesh& mesh,
                                          RankModel& model, int64_t role);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TESTS_TRAINER_LOGICAL_STATE_H_
