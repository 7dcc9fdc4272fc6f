// The processes that mpirun or srun has started together.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_MPI_PROCESSES_H_
#define SHARDSHIFT_TOOLS_MPI_PROCESSES_H_

#include <memory>

#include "absl/status/statusor.h"
#include "reshard/exec/processes.h"

namespace shardshift {

// This process alone if nothing launched several. MPI is over when the object
// goes, which must happen on all of them; make it once.
// Errors: Internal if MPI does not start.
absl::StatusOr<std::unique_ptr<reshard::Processes>> LaunchedProcesses();

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_MPI_PROCESSES_H_
