// SPDX-License-Identifier: Apache-2.0
#include "tools/train_ranks.h"

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/run_dir.h"
#include "reshard/exec/checkpoint_state.h"
#include "tools/cli.h"
#include "trainer/comm/thread_communicator.h"
#include "trainer/data/data_identity.h"
#include "trainer/run_config.h"
#include "trainer/run_state.h"

namespace shardshift {
namespace {

// Nobody else's run directory while it lives; it goes again if it is new and
// nothing has been saved.
class LockedRun {
 public:
  static absl::StatusOr<LockedRun> Lock(
      const std::optional<std::string>& run_dir) {
    LockedRun locked;
    if (!run_dir.has_value()) return locked;
    std::error_code ignored;
    if (!std::filesystem::exists(*run_dir, ignored)) locked.made_ = *run_dir;
    SS_ASSIGN_OR_RETURN(locked.lock_, ckpt::LockRun(*run_dir));
    return locked;
  }

  void RemoveIfNewAndEmpty() const {
    std::error_code ignored;
    if (!made_.empty()) std::filesystem::remove(made_, ignored);
  }

 private:
  std::string made_;
  std::optional<ckpt::File> lock_;
};

// An error in other words, which is agreed if it was.
absl::Status Reworded(const absl::Status& status, absl::StatusCode code,
                      absl::string_view message) {
  absl::Status reworded(code, message);
  status.ForEachPayload(
      [&reworded](absl::string_view url, const absl::Cord& payload) {
        reworded.SetPayload(url, payload);
      });
  return reworded;
}

// What went wrong with good input is failed work, whatever it was.
absl::Status AsFailedWork(const absl::Status& status) {
  return Reworded(status, absl::StatusCode::kAborted, status.message());
}

// As of a shell.
int ExitCodeOfEnd(int stop_signal) {
  return stop_signal == 0 ? kExitDone : 128 + stop_signal;
}

// All that decides what a run computes and saves.
std::string Describe(const trainer::TrainOptions& options) {
  const trainer::StoredRun run{
      .config = options.config,
      .progress = options.start,
      .data = trainer::DataIdentity(*options.data, options.data_order,
                                    options.config.seed)};
  return absl::StrCat(
      reshard::StateText(trainer::ToState(run)),
      reshard::StateText(trainer::ToRecord(
          options.layout, options.micro_batch_size, options.activations)),
      options.train_iters, " ", options.save_run_dir.value_or(""), " ",
      options.save_interval, " ", options.async_save, " ",
      options.checkpoint == nullptr ? "" : options.checkpoint->directory());
}

}  // namespace

absl::Status FitToProcesses(int64_t num_processes, const reshard::Layout& base,
                            LayoutFlags& flags) {
  reshard::Layout layout = ApplyLayout(flags, base);
  if (!flags.data.has_value()) layout.data = 1;
  const int64_t ranks = layout.world_size();
  const std::string sizes =
      absl::StrCat("TP ", layout.tensor, " x PP ", layout.pipeline);
  if (flags.data.has_value() && ranks != num_processes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--data-parallel-size: ", sizes, " x DP ", layout.data, " is ", ranks,
        " ranks, but ", num_processes,
        " processes were launched, one for each rank; leave it out, or launch ",
        ranks));
  }
  if (num_processes % ranks != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(num_processes, " processes were launched, one for each ",
                     "rank: they are no multiple of ", sizes, " = ", ranks));
  }
  if (!flags.data.has_value()) flags.data = num_processes / ranks;
  return absl::OkStatus();
}

absl::Status AgreeOnInput(trainer::Communicator& world,
                          const absl::Status& status) {
  const absl::Status agreed = trainer::AgreeOnStatus(world, status);
  absl::string_view message = agreed.message();
  if (!absl::ConsumePrefix(&message, "rank 0: ")) return agreed;
  return Reworded(agreed, agreed.code(), message);
}

absl::Status CheckSameRun(trainer::Communicator& world,
                          const trainer::TrainOptions& options) {
  const std::string mine = Describe(options);
  std::string first = mine;
  SS_RETURN_IF_ERROR(trainer::BroadcastText(world, first));
  return trainer::AgreeOnStatus(
      world, mine == first
                 ? absl::OkStatus()
                 : absl::FailedPreconditionError(
                       "has other flags, data or another checkpoint than rank "
                       "0; start all processes with the same ones"));
}

absl::StatusOr<int> TrainOnThreads(const trainer::TrainOptions& options,
                                   absl::Duration timeout) {
  SS_ASSIGN_OR_RETURN(const LockedRun locked,
                      LockedRun::Lock(options.save_run_dir));
  int stop_signal = 0;
  const absl::Status trained = trainer::RunRanks(
      static_cast<int>(options.layout.world_size()), {.timeout = timeout},
      [&](trainer::Communicator& world) -> absl::Status {
        SS_ASSIGN_OR_RETURN(const int signal, trainer::Train(world, options));
        if (world.rank() == 0) stop_signal = signal;
        return absl::OkStatus();
      });
  if (!trained.ok() || stop_signal != 0) locked.RemoveIfNewAndEmpty();
  if (!trained.ok()) return AsFailedWork(trained);
  return ExitCodeOfEnd(stop_signal);
}

absl::StatusOr<int> TrainAsRank(trainer::Communicator& world,
                                const trainer::TrainOptions& options,
                                absl::Duration timeout) {
  const absl::StatusOr<LockedRun> locked =
      LockedRun::Lock(world.rank() == 0 ? options.save_run_dir : std::nullopt);
  SS_RETURN_IF_ERROR(trainer::AgreeOnStatus(world, locked.status()));
  world.set_timeout(timeout);
  const absl::StatusOr<int> stop_signal = trainer::Train(world, options);
  if (stop_signal.value_or(1) != 0) locked->RemoveIfNewAndEmpty();
  if (!stop_signal.ok()) return AsFailedWork(stop_signal.status());
  return ExitCodeOfEnd(*stop_signal);
}

}  // namespace shardshift
