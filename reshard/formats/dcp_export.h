// A checkpoint as a PyTorch distributed checkpoint.
// Source: checkpoint-formats.md 2.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_DCP_EXPORT_H_
#define SHARDSHIFT_RESHARD_FORMATS_DCP_EXPORT_H_

#include "absl/status/statusor.h"
#include "ckpt/reader.h"
#include "reshard/exec/export.h"
#include "reshard/formats/plan_export.h"

namespace shardshift::reshard {

// Every tensor under its key, whole, and the objects of a checkpoint that was
// read from DCP. torch.distributed.checkpoint loads it.
absl::StatusOr<ExportPlan> PlanDcpExport(const ckpt::Reader& source,
                                         const ExportChoice& choice);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DCP_EXPORT_H_
