// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/partial_run.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/run_dir.h"

namespace shardshift::reshard {
namespace {

// A file that says who made the directory.
constexpr char kMark[] = "shardshift-reshard";

// A leftover is ours if it bears our mark, half-written perhaps.
absl::StatusOr<bool> IsOurs(const std::string& partial) {
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ckpt::ListDirectory(partial));
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return absl::StartsWith(name, kMark);
  });
}

// Refuses a destination that exists, or lies where it would go away with the
// source.
absl::Status CheckDestination(const ckpt::Reader& source,
                              const std::string& destination) {
  SS_ASSIGN_OR_RETURN(const bool taken, ckpt::Exists(destination));
  if (taken) {
    return absl::AlreadyExistsError(
        absl::StrCat(destination,
                     " exists; reshard writes only what is not there yet: "
                     "remove it or name another"));
  }
  const std::string name = destination.substr(destination.rfind('/') + 1);
  if (ckpt::ParseStepName(name).has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        destination, " has the name of a checkpoint; name a run directory"));
  }
  if (ckpt::LiesWithin(destination, source.directory())) {
    return absl::InvalidArgumentError(
        absl::StrCat(destination, " lies inside the checkpoint ",
                     source.directory(), "; name a place outside"));
  }
  return absl::OkStatus();
}

// Whoever writes into it has it locked.
absl::StatusOr<ckpt::File> LockPartial(const std::string& partial) {
  absl::StatusOr<ckpt::File> lock =
      ckpt::LockDirectory(partial, ckpt::Lock::kExclusive);
  if (!absl::IsFailedPrecondition(lock.status())) return lock;
  return absl::FailedPreconditionError(
      absl::StrCat("another reshard writes ", partial,
                   "; wait for its end, or name another destination"));
}

// Where it lies before it has its mark, and while it is removed: by this name
// it is ours, whatever is in it.
std::string StagingOf(const std::string& partial) {
  return absl::StrCat(partial, "-", kMark);
}

absl::Status RemoveStaging(const std::string& staging) {
  SS_ASSIGN_OR_RETURN(const bool leftover, ckpt::Exists(staging));
  if (!leftover) return absl::OkStatus();
  SS_ASSIGN_OR_RETURN(const ckpt::File lock, LockPartial(staging));
  return ckpt::RemoveTree(staging);
}

absl::Status RemovePartial(const std::string& partial) {
  const std::string staging = StagingOf(partial);
  SS_RETURN_IF_ERROR(RemoveStaging(staging));
  SS_RETURN_IF_ERROR(ckpt::Rename(partial, staging));
  return ckpt::RemoveTree(staging);
}

std::string ParentDirectory(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status RemoveLeftover(const std::string& partial) {
  // It has the lock before it has the mark.
  const absl::StatusOr<ckpt::File> lock = LockPartial(partial);
  if (absl::IsFailedPrecondition(lock.status())) return lock.status();
  const absl::StatusOr<bool> ours = IsOurs(partial);
  if (!ours.ok() || !*ours) {
    return absl::AlreadyExistsError(absl::StrCat(
        partial,
        " exists and was not left by an earlier reshard; move it out of the "
        "way"));
  }
  SS_RETURN_IF_ERROR(lock.status());
  return RemovePartial(partial);
}

}  // namespace

absl::StatusOr<PartialRun> PartialRun::Create(const ckpt::Reader& source,
                                              const std::string& destination) {
  std::string target =
      destination.substr(0, destination.find_last_not_of('/') + 1);
  if (target.empty()) {
    return absl::AlreadyExistsError("the destination is the root directory");
  }
  SS_RETURN_IF_ERROR(CheckDestination(source, target));
  std::string partial = absl::StrCat(target, ".partial");
  SS_ASSIGN_OR_RETURN(const bool leftover, ckpt::Exists(partial));
  if (leftover) SS_RETURN_IF_ERROR(RemoveLeftover(partial));
  std::string staging = StagingOf(partial);
  SS_RETURN_IF_ERROR(RemoveStaging(staging));
  SS_RETURN_IF_ERROR(ckpt::MakeDirectories(staging));
  SS_ASSIGN_OR_RETURN(ckpt::File lock, LockPartial(staging));
  PartialRun run(std::move(target), std::move(staging), std::move(lock),
                 leftover);
  SS_RETURN_IF_ERROR(
      ckpt::ReplaceFile(ckpt::JoinPath(run.path_, kMark), "unfinished\n"));
  SS_RETURN_IF_ERROR(ckpt::RenameNoReplace(run.path_, partial));
  run.path_ = std::move(partial);
  return run;
}

PartialRun::PartialRun(std::string destination, std::string path,
                       ckpt::File lock, bool replaced_leftover)
    : destination_(std::move(destination)),
      path_(std::move(path)),
      lock_(std::move(lock)),
      replaced_leftover_(replaced_leftover) {}

PartialRun::PartialRun(PartialRun&& other) noexcept
    : destination_(std::move(other.destination_)),
      path_(std::exchange(other.path_, {})),
      lock_(std::move(other.lock_)),
      replaced_leftover_(other.replaced_leftover_) {}

PartialRun::~PartialRun() {
  if (path_.empty()) return;
  // It is locked by this.
  const std::string staging = StagingOf(absl::StrCat(destination_, ".partial"));
  if (path_ != staging && ckpt::Rename(path_, staging).ok()) path_ = staging;
  ckpt::RemoveTree(path_).IgnoreError();
}

absl::Status PartialRun::Publish() {
  SS_RETURN_IF_ERROR(ckpt::RemoveTree(ckpt::JoinPath(path_, kMark)));
  SS_RETURN_IF_ERROR(ckpt::SyncDirectory(path_));
  SS_RETURN_IF_ERROR(ckpt::RenameNoReplace(path_, destination_));
  path_.clear();
  return ckpt::SyncDirectory(ParentDirectory(destination_));
}

}  // namespace shardshift::reshard
