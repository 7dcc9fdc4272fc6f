// Megatron's `torch_dist` checkpoints as a source.
// Source: checkpoint-formats.md 3, distributed-optimizer.md 2.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_H_
#define SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_H_

#include <string>

#include "absl/status/statusor.h"
#include "reshard/formats/foreign_checkpoint.h"

namespace shardshift::reshard {

// `path`: the root or an iteration. Reads model and optimizer state, however
// the optimizer was sharded: fully_reshardable, dp_reshardable,
// fully_sharded_model_space, dp_zero_gather_scatter, or not at all.
// Errors: as ReadDcpTensors and ParseMegatronArgs; DataLoss naming what is
// missing or does not fit; Unimplemented for another kind of sharding.
absl::StatusOr<ForeignCheckpoint> ReadTorchDist(const std::string& path,
                                                const ForeignOptions& options);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_H_
