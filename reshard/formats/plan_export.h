// What a checkpoint becomes in another format.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_PLAN_EXPORT_H_
#define SHARDSHIFT_RESHARD_FORMATS_PLAN_EXPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "reshard/exec/copy_plan.h"
#include "reshard/exec/export.h"
#include "reshard/formats/format.h"
#include "reshard/formats/open_source.h"
#include "reshard/layout/layout.h"

namespace shardshift::reshard {

struct ExportChoice {
  CopyChoice choice = {};
  bool generic = false;  // every tensor under the key that it has
  std::string max_shard_size = "50GB";  // of a safetensors file
  Layout layout = {};                   // of a format that knows ranks
};

// Errors: Unimplemented for a format that cannot be written; as ReadState and
// CheckStored; InvalidArgument for a choice that makes no sense;
// FailedPrecondition for a model that the format has no names for.
absl::StatusOr<ExportPlan> PlanExport(const OpenedSource& source, Format to,
                                      const ExportChoice& choice);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_PLAN_EXPORT_H_
