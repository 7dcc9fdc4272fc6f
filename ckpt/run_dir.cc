// SPDX-License-Identifier: Apache-2.0
#include "ckpt/run_dir.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"

namespace shardshift::ckpt {
namespace {

absl::Status NoCheckpoint(const std::string& path) {
  return absl::NotFoundError(absl::StrCat(
      path,
      " holds no checkpoint: expected a run directory with step-* in "
      "it, or one step directory"));
}

absl::StatusOr<ResolvedCheckpoint> ResolveStepDir(const std::string& path) {
  if (absl::EndsWith(path.substr(0, path.find_last_not_of('/') + 1),
                     ".partial")) {
    return absl::FailedPreconditionError(
        absl::StrCat(path,
                     " is what an unfinished save left behind; name "
                     "the run directory to take its newest whole step"));
  }
  SS_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader, Reader::Open(path));
  return ResolvedCheckpoint{path, reader->step(), ""};
}

}  // namespace

std::string StepName(int64_t step) {
  return absl::StrFormat("step-%08d", step);
}

std::optional<int64_t> ParseStepName(absl::string_view name) {
  const absl::string_view prefix = "step-";
  int64_t step = 0;
  if (!absl::StartsWith(name, prefix) ||
      !absl::SimpleAtoi(name.substr(prefix.size()), &step) ||
      // Refuses signs, spaces and other numbers of zeros.
      step < 0 || StepName(step) != name) {
    return std::nullopt;
  }
  return step;
}

absl::StatusOr<std::vector<StepEntry>> ListSteps(const std::string& run_dir) {
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ListDirectory(run_dir));
  std::vector<StepEntry> steps;
  for (const std::string& name : names) {
    if (const std::optional<int64_t> step = ParseStepName(name)) {
      steps.push_back({*step, JoinPath(run_dir, name)});
    }
  }
  std::sort(
      steps.begin(), steps.end(),
      [](const StepEntry& a, const StepEntry& b) { return a.step < b.step; });
  return steps;
}

absl::StatusOr<ResolvedCheckpoint> ResolveCheckpoint(const std::string& path) {
  SS_ASSIGN_OR_RETURN(const bool exists, Exists(path));
  if (!exists) {
    return absl::NotFoundError(absl::StrCat(path, " does not exist"));
  }
  SS_ASSIGN_OR_RETURN(const bool is_step_dir,
                      Exists(JoinPath(path, kIndexFileName)));
  if (is_step_dir) return ResolveStepDir(path);

  absl::StatusOr<std::vector<StepEntry>> steps = ListSteps(path);
  if (!steps.ok() || steps->empty()) return NoCheckpoint(path);
  absl::Status newest_error;
  for (auto step = steps->rbegin(); step != steps->rend(); ++step) {
    const absl::Status status = Reader::Open(step->path).status();
    if (status.ok()) {
      std::string note;
      if (!newest_error.ok()) {
        note = absl::StrCat(
            "taking ", StepName(step->step), " of ", path,
            ", not the newest, which does not open: ", newest_error.message());
      }
      return ResolvedCheckpoint{step->path, step->step, std::move(note)};
    }
    if (newest_error.ok()) newest_error = status;
  }
  return newest_error;
}

}  // namespace shardshift::ckpt
