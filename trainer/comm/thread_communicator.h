// Ranks as threads of one process.
// A collective publishes pointers and meets at a barrier; each rank then reads
// its peers' buffers directly, and adds its own chunk of a sum.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_COMM_THREAD_COMMUNICATOR_H_
#define SHARDSHIFT_TRAINER_COMM_THREAD_COMMUNICATOR_H_

#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "trainer/comm/communicator.h"

namespace shardshift::trainer {

struct ThreadWorldOptions {
  absl::Duration timeout = absl::Minutes(10);  // of every wait for a peer
};

// Runs `body` on `world_size` threads, each with its rank of the world, and
// returns when all have ended. If a rank returns an error or throws, every
// rank that waits, or waits later, gets Aborted, and the first error is
// returned as "rank 2: ...". Works with many more ranks than cores.
absl::Status RunRanks(int world_size, const ThreadWorldOptions& options,
                      const std::function<absl::Status(Communicator&)>& body);

// What a thread ends with: the status of `body`, or the exception it threw as
// one.
absl::Status CatchExceptions(absl::FunctionRef<absl::Status()> body);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_COMM_THREAD_COMMUNICATOR_H_
