// DeepSpeed's checkpoints as a source: tensors of any model, under the names
// that torch has for them.
// Source: distributed-optimizer.md 4.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_H_
#define SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_H_

#include <string>

#include "absl/status/statusor.h"
#include "reshard/formats/foreign_checkpoint.h"

namespace shardshift::reshard {

// Roles are `master`, `exp_avg` and the like of what is trained, and `weight`
// of buffers, frozen parameters, and where there is no fp32 master. The state
// has `generic` (settings of the groups, with the optimizer's own count of
// steps, and tied names) and `progress`.

// ZeRO 0 to 3, and with ZeRO also pipelines and tensor-parallel ranks, whose
// shards are merged (AutoTP, or a client's universal_checkpoint_info). `path`:
// a folder with a file `latest`, or a tag's folder. Errors: DataLoss naming a
// file and what was expected of it, for ranks that are missing, and for shards
// that do not make up their tensor; Unimplemented for experts, unknown stages,
// and rules of merging that cannot be followed.
absl::StatusOr<ForeignCheckpoint> ReadDeepSpeed(const std::string& path);

// A universal checkpoint, of any parallelism. The same with
// `latest_universal`.
absl::StatusOr<ForeignCheckpoint> ReadDeepSpeedUniversal(
    const std::string& path);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_H_
