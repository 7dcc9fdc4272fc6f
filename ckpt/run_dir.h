// Run directories: RUN/step-00000010/ for each checkpoint, and RUN/latest, a
// hint for people.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_RUN_DIR_H_
#define SHARDSHIFT_CKPT_RUN_DIR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shardshift::ckpt {

// The name of a checkpoint's index in its directory.
inline constexpr char kIndexFileName[] = "index.h5";

// "step-00000010".
std::string StepName(int64_t step);

// The step of a whole name, or nullopt: "step-00000010.partial" is none.
std::optional<int64_t> ParseStepName(absl::string_view name);

struct StepEntry {
  int64_t step = 0;
  std::string path;
};

// The step directories of a run, ascending by number. Whether they open is
// not looked at. Errors: NotFound without such a directory.
absl::StatusOr<std::vector<StepEntry>> ListSteps(const std::string& run_dir);

struct ResolvedCheckpoint {
  std::string step_dir;
  int64_t step = 0;
  // Empty, or a line for the user: which newer steps do not open, and why.
  std::string note;
};

// `path` itself if it is a step directory that opens, else the newest step of
// run directory `path` that does. Errors: NotFound if there is no checkpoint;
// if there are some and none opens, the error of the newest.
absl::StatusOr<ResolvedCheckpoint> ResolveCheckpoint(const std::string& path);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_RUN_DIR_H_
