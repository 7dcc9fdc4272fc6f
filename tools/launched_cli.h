// Programs that a launcher (mpirun, srun) may start as several processes.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_LAUNCHED_CLI_H_
#define SHARDSHIFT_TOOLS_LAUNCHED_CLI_H_

#include <CLI/CLI.hpp>
#include <functional>

#include "absl/status/statusor.h"
#include "trainer/comm/mpi/mpi_world.h"

namespace shardshift {

// The work of this process; `job` is null if nothing launched several.
using LaunchedAction =
    std::function<absl::StatusOr<int>(trainer::MpiWorld* job)>;

// RunCli, under a launcher as one rank of the job. Then an error is printed by
// the first rank alone, or the first that lives, and no process ends before the
// others have come to their end or had some seconds to. An action that runs
// job->Run does so on all ranks, and ends on all with the same status.
int RunLaunchedCli(CLI::App& app, int argc, char** argv,
                   const LaunchedAction& action);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_LAUNCHED_CLI_H_
