// The optimizer state of one model-parallel rank in a legacy Megatron
// checkpoint.
// Source: distributed-optimizer.md 1.2, 2.1 and 2.6.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_MEGATRON_OPTIMIZER_H_
#define SHARDSHIFT_RESHARD_FORMATS_MEGATRON_OPTIMIZER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/foreign_files.h"
#include "reshard/formats/megatron_args.h"
#include "reshard/formats/megatron_module.h"
#include "reshard/formats/source_tensors.h"
#include "reshard/formats/storage_check.h"
#include "reshard/formats/torch_file.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

enum class OptimizerKind : uint8_t {
  kNone,
  kDistributed,
  kPlain,
  kNoStepYet,  // as kPlain; its moments are zero
};

// What a rank's state is read from. Nothing is owned.
struct OptimizerSource {
  const TorchFile* torch = nullptr;  // its model_optim_rng.pt
  std::string folder;                // that file's, and of distrib_optim.pt
  const MegatronArgs* args = nullptr;
  const std::vector<LogicalTensor>* tensors = nullptr;
  std::vector<StorageCheck>* checks = nullptr;  // gets what values lie in
  bool is_first_stage = false;
  // Replicated parameters are the same on the other ranks, and so is on the
  // other expert ranks what is of no expert.
  bool is_first_tensor_rank = false;
  bool is_first_expert_rank = false;
};

// Adds master, exp_avg and exp_avg_sq of the rank's parameters, of which
// `modules` has a chunk each. Adds the files it needs.
// Errors: DataLoss naming what is missing, or does not fit the arguments.
absl::StatusOr<OptimizerKind> AddOptimizer(const OptimizerSource& source,
                                           const std::vector<Module>& modules,
                                           ckpt::ForeignFilesBuilder& builder);

// The same from what distrib_optim.pt holds, in a list of its own in `torch`,
// which is number `file` of the builder (dp_zero_gather_scatter).
absl::Status AddFlatObject(const OptimizerSource& source,
                           const TorchFile& torch, int64_t file,
                           const std::vector<Module>& modules,
                           ckpt::ForeignFilesBuilder& builder);

// A bucket of one state of a buffer, kept as a tensor of one dim.
struct BucketKey {
  bool experts = false;
  int64_t buffer = 0;
  int64_t bucket = 0;
  const char* state = nullptr;  // param, exp_avg or exp_avg_sq
};
using FindBucket =
    std::function<absl::StatusOr<const SourceTensor*>(const BucketKey& key)>;

// The same from such buckets (dp_reshardable), whose chunks ascend.
absl::Status AddBuckets(const OptimizerSource& source,
                        const std::vector<Module>& modules,
                        const FindBucket& find,
                        ckpt::ForeignFilesBuilder& builder);

// Adds the weights themselves, for a checkpoint without optimizer state.
absl::Status AddWeights(const OptimizerSource& source,
                        const std::vector<Module>& modules,
                        ckpt::ForeignFilesBuilder& builder);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_MEGATRON_OPTIMIZER_H_
