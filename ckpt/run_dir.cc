// SPDX-License-Identifier: Apache-2.0
#include "ckpt/run_dir.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/format/table.h"
#include "ckpt/reader.h"

namespace shardshift::ckpt {
namespace {

absl::Status NoCheckpoint(const std::string& path) {
  return absl::NotFoundError(absl::StrCat(
      path,
      " holds no checkpoint: expected a run directory with step-* in "
      "it, or one step directory"));
}

// Refuses what a reader could open, but nobody promises to be there.
absl::Status CheckNoLeftover(absl::string_view path) {
  while (absl::ConsumeSuffix(&path, "/")) continue;
  const bool is_partial = absl::EndsWith(path, ".partial");
  if (!is_partial && !absl::EndsWith(path, kDeletedSuffix)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      path, " is what an unfinished ", is_partial ? "save" : "deletion",
      " left behind; name the run directory to take its newest "
      "whole step"));
}

absl::StatusOr<ResolvedCheckpoint> ResolveStepDir(const std::string& path,
                                                  PartFiles parts) {
  SS_RETURN_IF_ERROR(CheckNoLeftover(path));
  SS_ASSIGN_OR_RETURN(std::shared_ptr<const Reader> reader,
                      Reader::Open(path, parts));
  return ResolvedCheckpoint{path, reader->step(), "", std::move(reader)};
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

absl::Status CheckStepName(const std::string& directory, int64_t step) {
  const size_t end = directory.find_last_not_of('/') + 1;
  const size_t begin = directory.rfind('/', end - 1) + 1;
  const absl::string_view name(directory.data() + begin, end - begin);
  const std::optional<int64_t> named = ParseStepName(name);
  if (!named || *named == step) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(directory, " holds step ", step,
                                          "; rename it to ", StepName(step)));
}

std::optional<int64_t> ParsePartFileName(absl::string_view name) {
  int64_t part = 0;
  if (!absl::ConsumePrefix(&name, "part-") ||
      !absl::ConsumeSuffix(&name, ".h5") || !absl::SimpleAtoi(name, &part) ||
      // As above.
      part < 0 || PartFileName(part) != absl::StrCat("part-", name, ".h5")) {
    return std::nullopt;
  }
  return part;
}

bool LiesWithin(const std::string& path, const std::string& directory) {
  const auto canonical = [](const std::string& name) {
    std::error_code ignored;
    return std::filesystem::weakly_canonical(name, ignored).string() + "/";
  };
  return absl::StartsWith(canonical(path), canonical(directory));
}

absl::StatusOr<bool> HoldsOnlyOurFiles(const std::string& path) {
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ListDirectory(path));
  for (const std::string& name : names) {
    if (name != kIndexFileName && name != kPartialIndexFileName &&
        !ParsePartFileName(name).has_value()) {
      return false;
    }
    SS_ASSIGN_OR_RETURN(const bool is_directory,
                        IsDirectory(JoinPath(path, name)));
    if (is_directory) return false;
  }
  return true;
}

absl::StatusOr<File> LockRun(const std::string& run_dir) {
  SS_RETURN_IF_ERROR(MakeDirectories(run_dir));
  absl::StatusOr<File> lock = LockDirectory(run_dir, Lock::kExclusive);
  if (!absl::IsFailedPrecondition(lock.status())) return lock;
  return absl::FailedPreconditionError(
      absl::StrCat("another run saves into ", run_dir,
                   "; wait for its end, or name another directory"));
}

absl::Status WriteLatest(const std::string& run_dir, int64_t step) {
  SS_RETURN_IF_ERROR(ReplaceFile(JoinPath(run_dir, "latest"),
                                 absl::StrCat(StepName(step), "\n")));
  return SyncDirectory(run_dir);
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

absl::StatusOr<ResolvedCheckpoint> ResolveCheckpoint(const std::string& path,
                                                     PartFiles parts) {
  SS_ASSIGN_OR_RETURN(const bool exists, Exists(path));
  if (!exists) {
    return absl::NotFoundError(absl::StrCat(path, " does not exist"));
  }
  SS_ASSIGN_OR_RETURN(const bool is_step_dir,
                      Exists(JoinPath(path, kIndexFileName)));
  if (is_step_dir) return ResolveStepDir(path, parts);

  SS_ASSIGN_OR_RETURN(const bool is_directory, Exists(JoinPath(path, ".")));
  if (!is_directory) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is no directory; name a run directory, or a step in one"));
  }
  SS_ASSIGN_OR_RETURN(const std::vector<StepEntry> steps, ListSteps(path));
  if (steps.empty()) return NoCheckpoint(path);
  absl::Status newest_error;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    absl::StatusOr<std::shared_ptr<const Reader>> reader =
        Reader::Open(step->path, parts);
    if (reader.ok()) {
      std::string note;
      if (!newest_error.ok()) {
        note = absl::StrCat(
            "taking ", StepName(step->step), " of ", path,
            ", not the newest, which does not open: ", newest_error.message());
      }
      return ResolvedCheckpoint{step->path, step->step, std::move(note),
                                *std::move(reader)};
    }
    if (newest_error.ok()) newest_error = reader.status();
  }
  return newest_error;
}

}  // namespace shardshift::ckpt
