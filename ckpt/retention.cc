// SPDX-License-Identifier: Apache-2.0
#include "ckpt/retention.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"

namespace shardshift::ckpt {
namespace {

absl::Status CheckRetention(const Retention& retention) {
  if (retention.keep_last >= 1 && retention.keep_every >= 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "retention of the last ", retention.keep_last, " steps and of every ",
      retention.keep_every, "th: expected at least 1 and at least 0"));
}

// The step that RUN/latest names, if it is one. Where it says the step lies,
// and whether there is anything, does not matter.
absl::StatusOr<std::optional<int64_t>> LatestStep(const std::string& run_dir) {
  const std::string path = JoinPath(run_dir, "latest");
  std::error_code not_a_link;
  std::string text = std::filesystem::read_symlink(path, not_a_link).string();
  if (not_a_link) {
    absl::StatusOr<std::string> read = ReadWholeFile(path);
    if (absl::IsNotFound(read.status())) return std::nullopt;
    if (!read.ok()) return read.status();
    text = *std::move(read);
  }
  absl::StripAsciiWhitespace(&text);
  absl::string_view name = text;
  while (absl::ConsumeSuffix(&name, "/")) continue;
  return ParseStepName(name.substr(name.rfind('/') + 1));
}

// The number of the `count`th newest of the steps that open whole, or nullopt
// if there are fewer.
std::optional<int64_t> OldestOfNewest(const std::vector<StepEntry>& steps,
                                      int64_t count) {
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (Reader::Open(step->path).ok() && --count == 0) return step->step;
  }
  return std::nullopt;
}

// The right to delete a directory: it is ours, and nobody reads it.
absl::StatusOr<File> LockForDeletion(const std::string& path) {
  SS_ASSIGN_OR_RETURN(const bool is_ours, HoldsOnlyOurFiles(path));
  if (is_ours) return LockDirectory(path, Lock::kExclusive);
  return absl::FailedPreconditionError(
      absl::StrCat(path, " holds other files than those of a checkpoint"));
}

class Pruner {
 public:
  Pruner(const std::string& run_dir, const Retention& retention, bool dry_run)
      : run_dir_(run_dir), retention_(retention), dry_run_(dry_run) {}

  absl::StatusOr<PruneReport> Run() {
    SS_RETURN_IF_ERROR(RemoveLeftovers());
    SS_ASSIGN_OR_RETURN(std::vector<StepEntry> steps, ListSteps(run_dir_));
    PassOverHigher(steps);
    SS_ASSIGN_OR_RETURN(const std::optional<int64_t> latest,
                        LatestStep(run_dir_));
    const std::optional<int64_t> oldest =
        OldestOfNewest(steps, retention_.keep_last);
    for (const StepEntry& step : steps) {
      if (!oldest || step.step >= *oldest || IsKept(step.step)) continue;
      if (step.step == latest) {
        report_.left.push_back(absl::StrCat(step.path, " is named by ",
                                            JoinPath(run_dir_, "latest")));
        continue;
      }
      SS_RETURN_IF_ERROR(Delete(step));
    }
    return std::move(report_);
  }

 private:
  bool IsKept(int64_t step) const {
    const std::vector<int64_t>& kept = retention_.protected_steps;
    return (retention_.keep_every > 0 && step % retention_.keep_every == 0) ||
           std::find(kept.begin(), kept.end(), step) != kept.end();
  }

  // Takes the steps of another run out of the list.
  void PassOverHigher(std::vector<StepEntry>& steps) {
    if (!retention_.current_step) return;
    const int64_t current = *retention_.current_step;
    const auto first = std::find_if(
        steps.begin(), steps.end(),
        [current](const StepEntry& entry) { return entry.step > current; });
    if (first == steps.end()) return;
    report_.left.push_back(absl::StrCat(
        steps.end() - first, " steps from ", first->path,
        " on are of another run, as this one has reached step ", current));
    steps.erase(first, steps.end());
  }

  absl::Status RemoveLeftovers() {
    SS_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                        ListDirectory(run_dir_));
    for (absl::string_view name : names) {
      const std::string path = JoinPath(run_dir_, name);
      if (!absl::ConsumeSuffix(&name, kDeletedSuffix) || !ParseStepName(name)) {
        continue;
      }
      const absl::StatusOr<File> lock = LockForDeletion(path);
      if (!lock.ok()) {
        report_.left.emplace_back(lock.status().message());
      } else if (!dry_run_) {
        SS_RETURN_IF_ERROR(RemoveTree(path));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Delete(const StepEntry& step) {
    const absl::StatusOr<File> lock = LockForDeletion(step.path);
    if (!lock.ok()) {
      report_.left.emplace_back(lock.status().message());
      return absl::OkStatus();
    }
    if (dry_run_) {
      report_.deleted.push_back(step);
      return absl::OkStatus();
    }
    // Else a step might come back, without some of its parts, after a loss of
    // power.
    const std::string doomed = step.path + kDeletedSuffix;
    const absl::Status renamed = RenameNoReplace(step.path, doomed);
    if (!renamed.ok()) {
      // The others can go all the same.
      report_.left.emplace_back(renamed.message());
      return absl::OkStatus();
    }
    report_.deleted.push_back(step);
    SS_RETURN_IF_ERROR(SyncDirectory(run_dir_));
    return RemoveTree(doomed);
  }

  const std::string& run_dir_;
  const Retention& retention_;
  const bool dry_run_;
  PruneReport report_;
};

}  // namespace

absl::StatusOr<PruneReport> PruneRun(const std::string& run_dir,
                                     const Retention& retention, bool dry_run) {
  SS_RETURN_IF_ERROR(CheckRetention(retention));
  return Pruner(run_dir, retention, dry_run).Run();
}

}  // namespace shardshift::ckpt
