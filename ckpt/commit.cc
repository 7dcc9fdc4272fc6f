// Publishing a checkpoint: everything is durable under another name before
// one rename makes it visible.
// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/format/table_builder.h"
#include "ckpt/hdf5/index_file.h"
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

// Whether a directory holds nothing but files a save writes. Such a one is
// ours to remove at whatever instant a save was killed.
absl::StatusOr<bool> HoldsOnlyOurFiles(const std::string& path) {
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ListDirectory(path));
  for (const std::string& name : names) {
    const bool is_ours =
        name == kIndexFileName ||
        (absl::StartsWith(name, "part-") && absl::EndsWith(name, ".h5"));
    if (!is_ours) return false;
  }
  return true;
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

absl::StatusOr<Table> MergeReceipts(const CheckpointId& id,
                                    const std::vector<PartReceipt>& receipts) {
  TableBuilder builder;
  std::map<int64_t, Part> parts;
  for (const PartReceipt& receipt : receipts) {
    if (CheckpointId{receipt.table.step, receipt.table.state} != id) {
      return absl::InvalidArgumentError(
          absl::StrCat("part ", receipt.part.number, " is of step ",
                       receipt.table.step, " or of another state than step ",
                       id.step, ", which is to be committed"));
    }
    if (!parts.try_emplace(receipt.part.number, receipt.part).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("part ", receipt.part.number, " is given twice"));
    }
    for (Fragment fragment : receipt.table.fragments) {
      const Tensor& tensor = receipt.table.tensors[fragment.tensor];
      fragment.part = receipt.part.number;
      SS_RETURN_IF_ERROR(builder.Add(tensor, std::move(fragment)));
    }
  }
  Table table = builder.Build().first;
  table.step = id.step;
  table.state = id.state;
  for (const auto& [number, part] : parts) table.parts.push_back(part);
  return table;
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

// The values of the 0-d tensors, read back from their parts.
absl::StatusOr<std::map<int64_t, std::string>> ReadScalars(
    const std::string& directory, const Table& table) {
  std::map<int64_t, std::string> scalars;
  for (const Fragment& fragment : table.fragments) {
    if (!fragment.box.start.empty()) continue;
    SS_ASSIGN_OR_RETURN(
        const File file,
        File::OpenForRead(JoinPath(directory, PartFileName(fragment.part))));
    std::string value(static_cast<size_t>(FragmentBytes(table, fragment)),
                      '\0');
    const Block& block = fragment.blocks.front();
    SS_RETURN_IF_ERROR(file.ReadAt(
        block.offset_bytes,
        std::as_writable_bytes(std::span(value.data(), value.size()))));
    if (Checksum64(AsBytes(value)) != block.checksum) {
      return absl::DataLossError(
          absl::StrCat(file.path(), " ", Describe(table, fragment), " at byte ",
                       block.offset_bytes, ": checksum differs"));
    }
    scalars.emplace(fragment.tensor, std::move(value));
  }
  return scalars;
}

absl::Status WriteIndex(const std::string& directory, const Table& table) {
  SS_ASSIGN_OR_RETURN(const auto scalars, ReadScalars(directory, table));
  const std::string path = JoinPath(directory, kIndexFileName);
  SS_ASSIGN_OR_RETURN(FileLayout layout, LayOutIndexFile(path, table, scalars));
  SS_ASSIGN_OR_RETURN(const File file, File::Create(path));
  const UserBlock user_block = {
      .role = FileRole::kIndex,
      .table_offset_bytes = layout.table_offset_bytes};
  return SealFile(file, std::move(layout.image), user_block, EncodeTable(table),
                  {})
      .status();
}

}  // namespace

absl::StatusOr<std::string> BeginCheckpoint(const std::string& run_dir,
                                            int64_t step) {
  SS_RETURN_IF_ERROR(MakeDirectories(run_dir));
  const std::string partial = PartialPath(run_dir, step);
  SS_ASSIGN_OR_RETURN(const bool has_leftover, Exists(partial));
  if (has_leftover) {
    SS_RETURN_IF_ERROR(CheckOurs(partial));
    SS_RETURN_IF_ERROR(RemoveTree(partial));
  }
  SS_RETURN_IF_ERROR(MakeDirectories(partial));
  return partial;
}

absl::Status CommitCheckpoint(const std::string& run_dir,
                              const CheckpointId& id,
                              const std::vector<PartReceipt>& receipts,
                              absl::string_view record, bool replace_existing) {
  const std::string partial = PartialPath(run_dir, id.step);
  const std::string target = StepPath(run_dir, id.step);
  SS_ASSIGN_OR_RETURN(const bool target_exists, Exists(target));
  if (target_exists && !replace_existing) {
    return absl::AlreadyExistsError(absl::StrCat(target, " exists"));
  }
  if (target_exists) SS_RETURN_IF_ERROR(CheckOurs(target));

  SS_ASSIGN_OR_RETURN(Table table, MergeReceipts(id, receipts));
  table.record = std::string(record);
  SS_RETURN_IF_ERROR(CheckIndexTable(table));
  SS_RETURN_IF_ERROR(CheckPartFiles(partial, table.parts));
  SS_RETURN_IF_ERROR(WriteIndex(partial, table));
  SS_RETURN_IF_ERROR(SyncDirectory(partial));

  SS_RETURN_IF_ERROR(target_exists ? Exchange(partial, target)
                                   : RenameNoReplace(partial, target));
  SS_RETURN_IF_ERROR(SyncDirectory(run_dir));
  SS_RETURN_IF_ERROR(ReplaceFile(JoinPath(run_dir, "latest"),
                                 absl::StrCat(StepName(id.step), "\n")));
  SS_RETURN_IF_ERROR(SyncDirectory(run_dir));
  // After an exchange this is the old checkpoint.
  return RemoveTree(partial);
}

}  // namespace shardshift::ckpt
