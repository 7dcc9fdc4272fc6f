// What is to be copied to lay a checkpoint out anew.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_COPY_PLAN_H_
#define SHARDSHIFT_RESHARD_EXEC_COPY_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ckpt/core/dtype.h"
#include "ckpt/reader.h"
#include "reshard/exec/copy_files.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/model_config.h"

namespace shardshift::reshard {

// What of a checkpoint is copied, and as what.
struct CopyChoice {
  // Leaves optimizer state behind: the master becomes the weight, where none is
  // kept beside it. A source without such state needs no choice.
  bool weights_only = false;
  std::optional<ckpt::DType> dtype = std::nullopt;  // of weights; else theirs
  std::string select = "*";  // tensors by name, a shell's pattern
};

struct CopyPlan {
  std::vector<TargetPart> parts;
  std::vector<TensorCopy> tensors;
};

// What CopyFiles has to do for a source with the tensors of `model`. They come
// in the order of the model, which is that of the fragments in every part.
// Of a source only what is chosen need be there.
// REQUIRES: Validate(model, layout) is OK. Errors: as CheckTensors;
// InvalidArgument for a pattern that selects nothing, or a dtype for what is
// not weights alone.
absl::StatusOr<CopyPlan> PlanCopy(const ckpt::Reader& source,
                                  const ModelConfig& model,
                                  const Layout& layout,
                                  const CopyChoice& choice);

// The plan for some of its parts; is_wanted[i] tells of parts[i].
CopyPlan OnlyParts(const CopyPlan& plan, const std::vector<bool>& is_wanted);

// Whether a tensor of the source is to be there in no copy of its own dtype.
bool Converts(const ckpt::Reader& source, const CopyPlan& plan);

// Tensors of which the plan copies a weight that the source keeps beside the
// master, by name, in their order.
std::vector<std::string> KeptWeights(const ckpt::Reader& source,
                                     const CopyPlan& plan);

// Payload to be written.
int64_t PayloadBytes(const TargetPart& part);
int64_t PayloadBytes(const CopyPlan& plan);

// Reads some of the payload, past the page cache. Bytes a second; 0 if there
// is too little to tell, or an index alone.
absl::StatusOr<double> ProbeReads(const ckpt::Reader& source);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_COPY_PLAN_H_
