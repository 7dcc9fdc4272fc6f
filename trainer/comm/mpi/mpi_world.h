// The ranks of a job under MPI, a process each: their failures, and their ends.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_COMM_MPI_MPI_WORLD_H_
#define SHARDSHIFT_TRAINER_COMM_MPI_MPI_WORLD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/comm/communicator.h"
#include "trainer/comm/mpi/mpi_calls.h"
#include "trainer/comm/mpi/mpi_mail.h"

namespace shardshift::trainer {

class MpiWorld {
 public:
  // This process as one rank of those that were launched together. Once in a
  // process. Errors: as StartMpi.
  static absl::StatusOr<std::unique_ptr<MpiWorld>> Join();
  // Ends MPI, for which it waits for the others, unless some are missing.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const { return mail_.rank(); }
  int size() const { return mail_.size(); }

  // Runs `body` as this rank of the world, and returns when it has ended on
  // all ranks: collective. If a rank returns an error or throws, every rank
  // that waits, or waits later, gets Aborted, and the first error that this
  // rank learnt of is returned as "rank 2: ...", on all ranks an error. Ranks
  // that have not come to the end some seconds after an error are missing().
  absl::Status Run(absl::Duration timeout,
                   const std::function<absl::Status(Communicator&)>& body);

  // World ranks that did not come to the end of a Run, which hang or are dead.
  // Nothing but Abort is possible then.
  const std::vector<int>& missing() const { return missing_; }
  [[noreturn]] void Abort(int exit_code);

  // For communicators, from here on.
  MpiMail& mail() { return mail_; }
  // Makes `status` the failure of the world, unless there is one already.
  void Fail(const absl::Status& status);
  // Held: for the `done` of MpiMail::Wait.
  bool failed();
  // What ranks get that were waiting when another one failed.
  absl::Status AbortedByFailure();
  // For a group of which this is the first rank: unique in the world.
  uint64_t NewContext();

 private:
  explicit MpiWorld(MpiCalls& calls) : calls_(calls), mail_(calls) {}

  // The first context of a run; its groups have those that follow.
  uint64_t run_context() const;
  absl::Status End();
  // Held.
  bool HasEnded(int world_rank) const;
  bool AllHaveEnded() const;

  MpiCalls& calls_;
  MpiMail mail_;
  uint64_t run_ = 0;                      // that goes on, counted from 0
  std::atomic<uint64_t> num_groups_ = 0;  // that this rank has named in it
  std::mutex failure_mutex_;
  absl::Status failure_;
  std::vector<int> missing_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_COMM_MPI_MPI_WORLD_H_
