// A program of which one rank hangs; the others are to say so, and to end it.
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <csignal>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ckpt/core/status_macros.h"
#include "tools/cli.h"
#include "tools/launched_cli.h"
#include "trainer/comm/mpi/mpi_world.h"

namespace shardshift {
namespace {

absl::StatusOr<int> RunWithHangingRank(trainer::MpiWorld* job, int hanging) {
  if (job == nullptr) return absl::FailedPreconditionError("needs mpirun");
  SS_RETURN_IF_ERROR(
      job->Run(absl::Seconds(1), [hanging](trainer::Communicator& world) {
        if (world.rank() == hanging) std::raise(SIGSTOP);
        return world.Barrier();
      }));
  return kExitDone;
}

}  // namespace
}  // namespace shardshift

int main(int argc, char** argv) {
  const std::unique_ptr<CLI::App> app =
      shardshift::MakeCli("mpi_hanging_rank", "Waits for a rank in vain.");
  int hanging = 0;
  app->add_option("--rank", hanging, "which one");
  return shardshift::RunLaunchedCli(
      *app, argc, argv, [&hanging](shardshift::trainer::MpiWorld* job) {
        return shardshift::RunWithHangingRank(job, hanging);
      });
}
