// What a checkpoint becomes in another format.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_PLAN_EXPORT_H_
#define SHARDSHIFT_RESHARD_FORMATS_PLAN_EXPORT_H_

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
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

// Names every key of a state but those that are kept.
void NameState(const nlohmann::json& state,
               std::initializer_list<absl::string_view> kept,
               std::vector<std::string>& left_out);

// Errors: Unimplemented for a format that cannot be written; as ReadState and
// CheckStored; InvalidArgument for a choice that makes no sense;
// FailedPrecondition for a model that the format has no names for.
absl::StatusOr<ExportPlan> PlanExport(const OpenedSource& source, Format to,
                                      const ExportChoice& choice);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_PLAN_EXPORT_H_
