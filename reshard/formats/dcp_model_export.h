// A model as a PyTorch distributed checkpoint, as FSDP saves one of Hugging
// Face's.
// Source: checkpoint-formats.md 2.3, and PyTorch 2.15.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_DCP_MODEL_EXPORT_H_
#define SHARDSHIFT_RESHARD_FORMATS_DCP_MODEL_EXPORT_H_

#include "absl/status/statusor.h"
#include "ckpt/reader.h"
#include "reshard/exec/export.h"
#include "reshard/formats/plan_export.h"

namespace shardshift::reshard {

// `model.NAME`, and of a training run `optim.state.NAME.exp_avg`, `.exp_avg_sq`
// and `.step`, with config.json beside them: ReadDcpModel takes it. A tied
// model has its embedding under both names, once. There are no `param_groups`:
// whoever loads keeps those of the run, by allow_partial_load. Errors:
// InvalidArgument for a choice that makes no whole model, or a dtype for
// optimizer state; FailedPrecondition as PlanHfTarget, or if the state does not
// tell the step.
absl::StatusOr<ExportPlan> PlanDcpModelExport(const ckpt::Reader& source,
                                              const ExportChoice& choice);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DCP_MODEL_EXPORT_H_
