// What is to be copied of a checkpoint of any model.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_GENERIC_PLAN_H_
#define SHARDSHIFT_RESHARD_EXEC_GENERIC_PLAN_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "ckpt/reader.h"
#include "reshard/exec/copy_plan.h"

namespace shardshift::reshard {

// Into up to `num_parts` part files, each tensor whole in one of them, all
// about as large. Of --dtype what is no float is left as it is.
// Errors: InvalidArgument for a choice that selects nothing.
absl::StatusOr<CopyPlan> PlanGenericCopy(const ckpt::Reader& source,
                                         int64_t num_parts,
                                         const CopyChoice& choice);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_GENERIC_PLAN_H_
