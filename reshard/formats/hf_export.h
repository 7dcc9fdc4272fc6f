// A checkpoint as a Hugging Face folder.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_HF_EXPORT_H_
#define SHARDSHIFT_RESHARD_FORMATS_HF_EXPORT_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/reader.h"
#include "reshard/exec/export.h"
#include "reshard/formats/plan_export.h"
#include "reshard/formats/safetensors_files.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

// The weights of a model, with the config.json that it came with, or a new one.
// Of optimizer state the masters become the weights.
absl::StatusOr<ExportPlan> PlanHfExport(const ckpt::Reader& source,
                                        const ExportChoice& choice);

// Adds files with the entries, in their order, and an index if there are
// several. Errors: InvalidArgument for a size that is none.
absl::Status AddShards(const std::vector<SafetensorsEntry>& entries,
                       const std::vector<LogicalTensor>& tensors,
                       const ExportChoice& choice, ExportPlan& plan);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_HF_EXPORT_H_
