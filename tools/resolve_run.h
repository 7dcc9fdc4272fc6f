// Who wins: the command line, the checkpoint, or the default.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_RESOLVE_RUN_H_
#define SHARDSHIFT_TOOLS_RESOLVE_RUN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"
#include "tools/known_model.h"
#include "tools/run_flags.h"
#include "trainer/activation_options.h"
#include "trainer/run_config.h"
#include "trainer/run_state.h"

namespace shardshift {

struct ResolvedRun {
  trainer::RunConfig config;
  reshard::Layout layout;
  int64_t micro_batch_size = 0;
  trainer::ActivationOptions activations;
  // What the command line changes against the checkpoint, a line each.
  std::vector<std::string> changes;
};

// What a checkpoint says of the run that wrote it. An index that was made anew
// does not tell the rest.
struct CheckpointRun {
  trainer::StoredRun run;
  std::optional<reshard::Layout> layout;
  std::optional<int64_t> micro_batch_size;
  trainer::ActivationOptions activations = {};
};

// A new run: flags, then defaults. `weights` is the model whose weights it
// starts from, if any; --hf-config tells the model, too. The result has been
// validated.
// Errors: InvalidArgument for a missing flag, one that contradicts the known
// model, or a run that cannot be.
absl::StatusOr<ResolvedRun> ResolveNewRun(
    const RunFlags& flags,
    const std::optional<KnownModel>& weights = std::nullopt);

// A resumed run: flags, then the checkpoint.
// Errors: Unimplemented for a model or layout that the trainer cannot run;
// InvalidArgument for a flag that contradicts what a run must keep
// (model, sequence length, seed), or its schedule without
// --override-opt-param-scheduler; as above.
absl::StatusOr<ResolvedRun> ResolveResumedRun(const RunFlags& flags,
                                              const CheckpointRun& checkpoint);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_RESOLVE_RUN_H_
