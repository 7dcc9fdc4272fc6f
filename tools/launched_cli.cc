// SPDX-License-Identifier: Apache-2.0
#include "tools/launched_cli.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tools/cli.h"
#include "trainer/comm/mpi/mpi_launch.h"

namespace shardshift {
namespace {

// How long a rank that is cut off waits for the one that says why.
constexpr absl::Duration kTimeToSpeak = absl::Seconds(10);

// Whether this rank is the first of those that came to the end.
bool IsFirstPresent(const trainer::MpiWorld& job) {
  const std::vector<int>& missing = job.missing();
  for (int rank = 0; rank < job.rank(); ++rank) {
    if (std::ranges::find(missing, rank) == missing.end()) return false;
  }
  return true;
}

}  // namespace

int RunLaunchedCli(CLI::App& app, int argc, char** argv,
                   const LaunchedAction& action) {
  if (!trainer::IsLaunched()) {
    return RunCli(app, argc, argv, [&action] { return action(nullptr); });
  }
  const absl::StatusOr<std::unique_ptr<trainer::MpiWorld>> joined =
      trainer::MpiWorld::Join();
  if (!joined.ok()) {
    PrintError(joined.status().message());
    return ExitCode(joined.status());
  }
  trainer::MpiWorld& job = **joined;
  absl::Status failure;
  const auto remember = [&] {
    absl::StatusOr<int> code = action(&job);
    failure = code.status();
    return code;
  };
  const int code =
      RunCli(app, argc, argv, remember, /*speaks=*/job.rank() == 0);
  if (job.missing().empty()) {
    // The farewell: a launcher ends all when one ends with an error, and the
    // first rank has to speak before that.
    const absl::Status farewell =
        job.Run(absl::InfiniteDuration(), [code](trainer::Communicator&) {
          return code == kExitDone ? absl::OkStatus()
                                   : absl::AbortedError(absl::StrCat(
                                         "ended with exit code ", code));
        });
    if (failure.ok()) failure = farewell;
  }
  if (job.missing().empty()) return code;
  if (!IsFirstPresent(job)) {
    // The abort of the one that speaks ends this rank, after it has spoken.
    absl::SleepFor(kTimeToSpeak);
  } else if (job.rank() > 0) {
    PrintError(failure.message());
  }
  job.Abort(code == kExitDone ? kExitFailed : code);
}

}  // namespace shardshift
