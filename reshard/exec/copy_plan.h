// What is to be copied to lay a checkpoint out anew.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_COPY_PLAN_H_
#define SHARDSHIFT_RESHARD_EXEC_COPY_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ckpt/reader.h"
#include "reshard/exec/copy_files.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/model_config.h"

namespace shardshift::reshard {

struct CopyPlan {
  std::vector<TargetPart> parts;
  std::vector<TensorCopy> tensors;
};

// What CopyFiles has to do for a source with the tensors of `model`. They come
// in the order of the model, which is that of the fragments in every part.
// REQUIRES: Validate(model, layout) is OK. Errors: as CheckTensors.
absl::StatusOr<CopyPlan> PlanCopy(const ckpt::Reader& source,
                                  const ModelConfig& model,
                                  const Layout& layout);

// Of all tensors together.
int64_t PayloadBytes(const ckpt::Reader& source);

// Reads some of the payload, past the page cache. Bytes a second; 0 if there
// is too little to tell, or an index alone.
absl::StatusOr<double> ProbeReads(const ckpt::Reader& source);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_COPY_PLAN_H_
