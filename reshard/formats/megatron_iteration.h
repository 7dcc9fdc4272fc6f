// Which of the iterations below the root of a Megatron checkpoint is meant.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_MEGATRON_ITERATION_H_
#define SHARDSHIFT_RESHARD_FORMATS_MEGATRON_ITERATION_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace shardshift::reshard {

inline constexpr char kMegatronTracker[] = "latest_checkpointed_iteration.txt";

// The folder with the files: `path` itself, or the iteration that its tracker
// file names. Errors: DataLoss for a tracker that names none that is there;
// FailedPrecondition for iterations without a tracker; those of files.
absl::StatusOr<std::string> MegatronIteration(const std::string& path);

// The name of the folder: "release" for iteration 0, of which there is no run.
std::string IterationName(int64_t iteration);

// The number in the name of such a folder, "iter_0000010"; 0 if it has none.
int64_t IterationOf(const std::string& directory);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_MEGATRON_ITERATION_H_
