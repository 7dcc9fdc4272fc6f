// A model, and its optimizer, as a Megatron-Core distributed checkpoint.
// Source: checkpoint-formats.md 3, distributed-optimizer.md 2.3 and 2.6.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_EXPORT_H_
#define SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_EXPORT_H_

#include "absl/status/statusor.h"
#include "ckpt/reader.h"
#include "reshard/exec/export.h"
#include "reshard/formats/plan_export.h"

namespace shardshift::reshard {

// As megatron-core 0.16.1 would have written it on choice.layout, a data file
// for each rank that is the first to hold something; with a distributed
// optimizer in the form `fully_reshardable`.
// Errors: as ReadMegatronSource.
absl::StatusOr<ExportPlan> PlanTorchDistExport(const ckpt::Reader& source,
                                               const ExportChoice& choice);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_EXPORT_H_
