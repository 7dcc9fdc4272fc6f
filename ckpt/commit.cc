// Publishing a checkpoint: everything is durable under another name before
// one rename makes it visible.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/hdf5/index_file.h"
#include "ckpt/index_alone.h"
#include "ckpt/index_writer.h"
#include "ckpt/part_table.h"
#include "ckpt/run_dir.h"
#include "ckpt/writer.h"

namespace shardshift::ckpt {
namespace {

std::string StepPath(const std::string& run_dir, int64_t step) {
  return JoinPath(run_dir, StepName(step));
}

std::string PartialPath(const std::string& run_dir, int64_t step) {
  return StepPath(run_dir, step) + ".partial";
}

// AlreadyExists if something is at `path` that no save has written.
absl::Status CheckOurs(const std::string& path) {
  const absl::StatusOr<bool> is_ours = HoldsOnlyOurFiles(path);
  if (is_ours.ok() && *is_ours) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(path,
                   " is in the way and holds something other than a "
                   "checkpoint; move it away"));
}

// Removes what stopped saves of any step have left, as their steps may never
// be saved again and their bytes fill the disk.
absl::Status RemoveLeftovers(const std::string& run_dir) {
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ListDirectory(run_dir));
  for (const std::string& name : names) {
    absl::string_view step_name = name;
    if (!absl::ConsumeSuffix(&step_name, ".partial") ||
        !ParseStepName(step_name)) {
      continue;
    }
    const std::string path = JoinPath(run_dir, name);
    const absl::StatusOr<bool> is_ours = HoldsOnlyOurFiles(path);
    if (is_ours.ok() && *is_ours) SS_RETURN_IF_ERROR(RemoveTree(path));
  }
  return absl::OkStatus();
}

// The part files are the ones of the receipts.
absl::Status CheckPartFiles(const std::string& directory,
                            const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    SS_ASSIGN_OR_RETURN(
        const File file,
        File::OpenForRead(JoinPath(directory, PartFileName(part.number))));
    SS_ASSIGN_OR_RETURN(const UserBlock block,
                        ReadUserBlock(file, FileRole::kPart));
    if (block.metadata_digest != part.metadata_digest) {
      return absl::DataLossError(
          absl::StrCat(file.path(), " is not the file of its receipt"));
    }
  }
  return absl::OkStatus();
}

// Whether step `step` is there. AlreadyExists if it may not be replaced.
absl::StatusOr<bool> CheckTarget(const std::string& target,
                                 bool replace_existing) {
  SS_ASSIGN_OR_RETURN(const bool target_exists, Exists(target));
  if (target_exists && !replace_existing) {
    return absl::AlreadyExistsError(absl::StrCat(target, " exists"));
  }
  if (target_exists) SS_RETURN_IF_ERROR(CheckOurs(target));
  return target_exists;
}

// Writes the index and makes the partial step the step.
absl::Status Publish(const std::string& run_dir, const Table& table,
                     int64_t max_viewed_fragments, bool target_exists) {
  const std::string partial = PartialPath(run_dir, table.step);
  const std::string target = StepPath(run_dir, table.step);
  SS_RETURN_IF_ERROR(
      WriteIndex(partial, kIndexFileName, table, max_viewed_fragments));
  SS_RETURN_IF_ERROR(SyncDirectory(partial));

  SS_RETURN_IF_ERROR(target_exists ? Exchange(partial, target)
                                   : RenameNoReplace(partial, target));
  SS_RETURN_IF_ERROR(SyncDirectory(run_dir));
  SS_RETURN_IF_ERROR(WriteLatest(run_dir, table.step));
  // After an exchange this is the old checkpoint.
  return RemoveTree(partial);
}

}  // namespace

absl::StatusOr<std::string> BeginCheckpoint(const std::string& run_dir,
                                            int64_t step) {
  SS_RETURN_IF_ERROR(MakeDirectories(run_dir));
  const std::string partial = PartialPath(run_dir, step);
  SS_ASSIGN_OR_RETURN(const bool has_leftover, Exists(partial));
  if (has_leftover) SS_RETURN_IF_ERROR(CheckOurs(partial));
  SS_RETURN_IF_ERROR(RemoveLeftovers(run_dir));
  const absl::Status made = MakeDirectories(partial);
  if (made.ok()) return partial;
  // It may be there and not durable.
  RemoveTree(partial).IgnoreError();
  return made;
}

absl::Status CommitCheckpoint(const std::string& run_dir,
                              const CheckpointId& id,
                              const std::vector<PartReceipt>& receipts,
                              absl::string_view record, bool replace_existing) {
  SS_ASSIGN_OR_RETURN(
      const bool target_exists,
      CheckTarget(StepPath(run_dir, id.step), replace_existing));
  SS_ASSIGN_OR_RETURN(const Table table, MergeReceipts(id, receipts, record));
  SS_RETURN_IF_ERROR(
      CheckPartFiles(PartialPath(run_dir, id.step), table.parts));
  return Publish(run_dir, table, kMaxViewedFragments, target_exists);
}

absl::StatusOr<PartReceipt> ReceiptWithoutPart(
    int64_t part, const CheckpointId& id,
    const std::vector<FragmentSpec>& specs) {
  SS_ASSIGN_OR_RETURN(PartTable made,
                      MakePartTable(part, id, specs, Codec::kNone));
  int64_t end = kUserBlockBytes;
  for (const int64_t index : made.index) {
    Fragment& fragment = made.table.fragments[index];
    const int64_t num_bytes = FragmentBytes(made.table, fragment);
    PlaceBlocks(end, num_bytes, fragment);
    end += (num_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  }
  return PartReceipt{{part, end, {}}, std::move(made.table)};
}

absl::Status CommitIndexAlone(const std::string& run_dir,
                              const CheckpointId& id,
                              const std::vector<PartReceipt>& receipts,
                              absl::string_view record) {
  SS_RETURN_IF_ERROR(CheckTarget(StepPath(run_dir, id.step),
                                 /*replace_existing=*/false)
                         .status());
  SS_ASSIGN_OR_RETURN(const Table table, MergeReceipts(id, receipts, record));
  return Publish(run_dir, table, /*max_viewed_fragments=*/0,
                 /*target_exists=*/false);
}

}  // namespace shardshift::ckpt
