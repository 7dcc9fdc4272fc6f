// Megatron's legacy checkpoints, one folder a model-parallel rank, as a source.
// Source: checkpoint-formats.md 4, distributed-optimizer.md 1.2, 2.1 and 2.6.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_MEGATRON_LEGACY_H_
#define SHARDSHIFT_RESHARD_FORMATS_MEGATRON_LEGACY_H_

#include <string>

#include "absl/status/statusor.h"
#include "reshard/formats/foreign_checkpoint.h"

namespace shardshift::reshard {

// `path`: the root, whose tracker file names the iteration, or an iteration.
// Tensors are those of the logical model: `master`, `exp_avg`, `exp_avg_sq`, or
// `weight` if there is no optimizer state.
// Errors: NotFound without such folders; as ParseMegatronArgs and
// TorchFile::Read; DataLoss naming the tensor that is missing, unknown, or of
// another shape, and where the arguments and the optimizer's buffers disagree.
absl::StatusOr<ForeignCheckpoint> ReadMegatronLegacy(
    const std::string& path, const ForeignOptions& options);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_MEGATRON_LEGACY_H_
