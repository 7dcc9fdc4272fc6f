// Whether a launcher started this process as one of several, and the way to
// MPI if so.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_COMM_MPI_MPI_LAUNCH_H_
#define SHARDSHIFT_TRAINER_COMM_MPI_MPI_LAUNCH_H_

#include "absl/status/statusor.h"
#include "trainer/comm/mpi/mpi_calls.h"

namespace shardshift::trainer {

// By the variables that mpirun, srun and their like set for each process.
// To be asked before there are other threads.
bool IsLaunched();

// Loads lib/libshardshift_mpi.so beside the program's folder, and starts MPI.
// At most once in a process, which keeps it to its end.
// Errors: FailedPrecondition if the library does not load; Internal if MPI does
// not start.
absl::StatusOr<MpiCalls*> StartMpi();

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_COMM_MPI_MPI_LAUNCH_H_
