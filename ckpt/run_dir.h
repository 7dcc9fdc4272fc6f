// Run directories: RUN/step-00000010/ for each checkpoint, and RUN/latest, a
// hint for people.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_RUN_DIR_H_
#define SHARDSHIFT_CKPT_RUN_DIR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"

namespace shardshift::ckpt {

// The name of a checkpoint's index in its directory.
inline constexpr char kIndexFileName[] = "index.h5";
// Of an index that is being made anew.
inline constexpr char kPartialIndexFileName[] = "index.h5.partial";

// Added to the name of a step that is being deleted.
inline constexpr char kDeletedSuffix[] = ".deleted";

// "step-00000010".
std::string StepName(int64_t step);

// The step of a whole name, or nullopt: "step-00000010.partial" is none.
std::optional<int64_t> ParseStepName(absl::string_view name);

// A directory named after a step holds that step. Errors: DataLoss.
absl::Status CheckStepName(const std::string& directory, int64_t step);

// The number of a part file's whole name, or nullopt.
std::optional<int64_t> ParsePartFileName(absl::string_view name);

// Whether `path`, which need not exist, is `directory` or below it, whatever
// the links on the way.
bool LiesWithin(const std::string& path, const std::string& directory);

// Whether a directory holds nothing but files that we write into a step.
absl::StatusOr<bool> HoldsOnlyOurFiles(const std::string& path);

// Takes the right to save into a run directory, which is made if need be,
// until the File is gone. Errors: FailedPrecondition if another run has it.
absl::StatusOr<File> LockRun(const std::string& run_dir);

struct StepEntry {
  int64_t step = 0;
  std::string path;
};

// Makes RUN/latest name a step, durably.
absl::Status WriteLatest(const std::string& run_dir, int64_t step);

// The step directories of a run, ascending by number. Whether they open is
// not looked at. Errors: NotFound without such a directory.
absl::StatusOr<std::vector<StepEntry>> ListSteps(const std::string& run_dir);

struct ResolvedCheckpoint {
  std::string step_dir;
  int64_t step = 0;
  // Empty, or a line for the user: which newer steps do not open, and why.
  std::string note;
  std::shared_ptr<const Reader> reader;  // of step_dir
};

// `path` itself if it is a step directory that opens, else the newest step of
// run directory `path` that does. Errors: NotFound if there is no checkpoint;
// FailedPrecondition if `path` is no directory; if there are checkpoints and
// none opens, the error of the newest.
absl::StatusOr<ResolvedCheckpoint> ResolveCheckpoint(
    const std::string& path, PartFiles parts = PartFiles::kNeeded);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_RUN_DIR_H_
