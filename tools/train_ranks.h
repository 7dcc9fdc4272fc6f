// Who the ranks of a training are: threads of this process, or the processes
// of a job.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_TRAIN_RANKS_H_
#define SHARDSHIFT_TOOLS_TRAIN_RANKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "reshard/layout/layout.h"
#include "tools/run_flags.h"
#include "trainer/comm/communicator.h"
#include "trainer/train.h"

namespace shardshift {

// Sets the data-parallel size, unless it is given, to what makes the layout as
// many ranks as there are processes. `base` is the layout where no flag says
// otherwise. Errors: InvalidArgument if no size does, or that which is given
// does not.
absl::Status FitToProcesses(int64_t num_processes, const reshard::Layout& base,
                            LayoutFlags& flags);

// AgreeOnStatus on what is refused before training. Of rank 0, which speaks,
// the error comes without its name: mostly all have the same.
absl::Status AgreeOnInput(trainer::Communicator& world,
                          const absl::Status& status);

// Collective. Errors: FailedPrecondition if a process has another run before it
// than the first one, by its flags, data or checkpoint.
absl::Status CheckSameRun(trainer::Communicator& world,
                          const trainer::TrainOptions& options);

// Trains, with ranks that wait for each other for `timeout` at most; gives the
// exit code. No other run saves into the same directory meanwhile.
// Errors: Aborted, whatever went wrong, as the input was good.
absl::StatusOr<int> TrainOnThreads(const trainer::TrainOptions& options,
                                   absl::Duration timeout);
// The part of one process. Collective.
absl::StatusOr<int> TrainAsRank(trainer::Communicator& world,
                                const trainer::TrainOptions& options,
                                absl::Duration timeout);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_TRAIN_RANKS_H_
