// SPDX-License-Identifier: Apache-2.0
#include "ckpt/rebuild.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/index_writer.h"
#include "ckpt/io/file.h"
#include "ckpt/part_receipt.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"

namespace shardshift::ckpt {
namespace {

absl::Status CheckIndexFile(const std::string& step_dir) {
  SS_RETURN_IF_ERROR(ReadIndexTable(step_dir).status());
  SS_ASSIGN_OR_RETURN(const File file,
                      File::OpenForRead(JoinPath(step_dir, kIndexFileName)));
  SS_ASSIGN_OR_RETURN(const UserBlock block,
                      ReadUserBlock(file, FileRole::kIndex));
  return CheckMetadataDigest(file, block, {});
}

// Of all parts in the directory, ascending.
absl::StatusOr<std::vector<PartReceipt>> ReadReceipts(
    const std::string& step_dir) {
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ListDirectory(step_dir));
  std::map<int64_t, PartReceipt> receipts;
  for (const std::string& name : names) {
    const std::optional<int64_t> number = ParsePartFileName(name);
    if (!number) continue;
    SS_ASSIGN_OR_RETURN(receipts[*number],
                        ReadReceipt(JoinPath(step_dir, name), *number));
  }
  std::vector<PartReceipt> ascending;
  ascending.reserve(receipts.size());
  for (auto& [number, receipt] : receipts) {
    ascending.push_back(std::move(receipt));
  }
  if (!ascending.empty()) return ascending;
  return absl::NotFoundError(
      absl::StrCat(step_dir, " holds no part to make an index of"));
}

// Whether all parts are of one checkpoint, as far as they tell.
absl::Status CheckBelongTogether(const std::string& step_dir,
                                 const std::vector<PartReceipt>& receipts) {
  const PartReceipt& first = receipts.front();
  std::map<std::pair<uint64_t, uint64_t>, int64_t> by_digest;
  for (const PartReceipt& receipt : receipts) {
    const std::string path =
        JoinPath(step_dir, PartFileName(receipt.part.number));
    const std::string first_name = PartFileName(first.part.number);
    if (receipt.table.step != first.table.step) {
      return absl::DataLossError(
          absl::StrCat(path, " is of step ", receipt.table.step, ", ",
                       first_name, " of step ", first.table.step));
    }
    if (receipt.table.state != first.table.state) {
      return absl::DataLossError(
          absl::StrCat(path, " has another state than ", first_name,
                       ": one of them is of another checkpoint; move it away"));
    }
    const Digest128& digest = receipt.part.metadata_digest;
    const auto [twin, is_new] =
        by_digest.try_emplace({digest.high, digest.low}, receipt.part.number);
    if (!is_new) {
      return absl::DataLossError(absl::StrCat(path, " is a copy of ",
                                              PartFileName(twin->second),
                                              "; move one of them away"));
    }
  }
  return CheckStepName(step_dir, first.table.step);
}

// The record of the old index, if that is of the same checkpoint.
std::optional<std::string> OldRecord(const std::string& step_dir,
                                     const CheckpointId& id) {
  absl::StatusOr<Table> table = ReadIndexTable(step_dir);
  if (!table.ok() || CheckpointId{table->step, table->state} != id) {
    return std::nullopt;
  }
  return std::move(table->record);
}

// An index that is whole, or cannot be looked at, may hold a record that the
// parts do not.
absl::Status CheckReplaceable(const std::string& step_dir) {
  absl::Status status = CheckIndexFile(step_dir);
  if (absl::IsNotFound(status) || absl::IsDataLoss(status)) {
    return absl::OkStatus();
  }
  if (!status.ok()) return status;
  return absl::FailedPreconditionError(
      absl::StrCat(JoinPath(step_dir, kIndexFileName),
                   " is whole; --force replaces it all the same"));
}

absl::Status ReplaceIndex(const std::string& step_dir, const Table& table,
                          int64_t max_viewed_fragments) {
  const std::string partial = JoinPath(step_dir, kPartialIndexFileName);
  const absl::StatusOr<bool> is_directory = IsDirectory(partial);
  if (is_directory.ok() && *is_directory) {
    return absl::FailedPreconditionError(
        absl::StrCat(partial, " is in the way, a directory; move it away"));
  }
  SS_RETURN_IF_ERROR(RemoveTree(partial));
  absl::Status status =
      WriteIndex(step_dir, kPartialIndexFileName, table, max_viewed_fragments);
  if (!status.ok()) {
    RemoveTree(partial).IgnoreError();
    return status;
  }
  SS_RETURN_IF_ERROR(Rename(partial, JoinPath(step_dir, kIndexFileName)));
  return SyncDirectory(step_dir);
}

}  // namespace

absl::StatusOr<RebuildReport> RebuildIndex(const std::string& step_dir,
                                           const RebuildOptions& options) {
  SS_ASSIGN_OR_RETURN(const File lock,
                      LockDirectory(step_dir, Lock::kExclusive));
  if (!options.replaces_whole_index) {
    SS_RETURN_IF_ERROR(CheckReplaceable(step_dir));
  }
  SS_ASSIGN_OR_RETURN(const std::vector<PartReceipt> receipts,
                      ReadReceipts(step_dir));
  SS_RETURN_IF_ERROR(CheckBelongTogether(step_dir, receipts));
  const Table& any = receipts.front().table;
  const CheckpointId id = {any.step, any.state};
  const std::optional<std::string> record = OldRecord(step_dir, id);
  const absl::StatusOr<Table> table =
      MergeReceipts(id, receipts, record.value_or("{}"));
  if (!table.ok()) {
    return absl::DataLossError(
        absl::StrCat(step_dir,
                     ": its parts are not those of one whole "
                     "checkpoint: ",
                     table.status().message()));
  }
  SS_RETURN_IF_ERROR(
      ReplaceIndex(step_dir, *table, options.max_viewed_fragments));
  return RebuildReport{
      .step = id.step,
      .num_tensors = static_cast<int64_t>(table->tensors.size()),
      .num_fragments = static_cast<int64_t>(table->fragments.size()),
      .num_parts = static_cast<int64_t>(table->parts.size()),
      .knows_record = record.has_value()};
}

}  // namespace shardshift::ckpt
