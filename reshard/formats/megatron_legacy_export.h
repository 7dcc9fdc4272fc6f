// A checkpoint as Megatron's legacy files, one folder a model-parallel rank.
// Source: checkpoint-formats.md 4, distributed-optimizer.md 1.2, 2.1 and 2.6.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_MEGATRON_LEGACY_EXPORT_H_
#define SHARDSHIFT_RESHARD_FORMATS_MEGATRON_LEGACY_EXPORT_H_

#include "absl/status/statusor.h"
#include "ckpt/reader.h"
#include "reshard/exec/export.h"
#include "reshard/formats/plan_export.h"

namespace shardshift::reshard {

// The state of the optimizer in distrib_optim.pt or, without a distributed
// optimizer, among the rest. Errors: as PlanExport and PlanMegatronTarget;
// InvalidArgument for experts cut over other ranks than the rest, which such
// files cannot say.
absl::StatusOr<ExportPlan> PlanMegatronLegacyExport(const ckpt::Reader& source,
                                                    const ExportChoice& choice);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_MEGATRON_LEGACY_EXPORT_H_
