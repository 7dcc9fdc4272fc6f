// What is to be copied to lay a checkpoint out anew.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_COPY_PLAN_H_
#define SHARDSHIFT_RESHARD_EXEC_COPY_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ckpt/reader.h"
#include "reshard/exec/copy_files.h"
#include "reshard/layout/parameters.h"
#include "reshard/layout/write_assignment.h"

namespace shardshift::reshard {

struct CopyPlan {
  std::vector<TargetPart> parts;
  std::vector<TensorCopy> tensors;
};

// What CopyFiles has to do for items[k], those of part k. Tensors come in the
// order of the model, which is that of the fragments in every part.
// Errors: NotFound for a tensor that the source has not.
absl::StatusOr<CopyPlan> PlanCopy(
    const ckpt::Reader& source, const std::vector<LogicalTensor>& tensors,
    const std::vector<std::vector<WriteItem>>& items);

// Of all tensors together.
int64_t PayloadBytes(const ckpt::Reader& source);

// Reads some of the payload, past the page cache. Bytes a second; 0 if there
// is too little to tell.
absl::StatusOr<double> ProbeReads(const ckpt::Reader& source);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_COPY_PLAN_H_
