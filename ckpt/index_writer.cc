// SPDX-License-Identifier: Apache-2.0
#include "ckpt/index_writer.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/block_io.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/format/table_builder.h"
#include "ckpt/hdf5/index_file.h"
#include "ckpt/io/aligned_buffer.h"
#include "ckpt/io/file.h"

namespace shardshift::ckpt {
namespace {

// The values of the 0-d tensors, read back from their parts.
absl::StatusOr<std::map<int64_t, std::string>> ReadScalars(
    const std::string& directory, const Table& table) {
  std::map<int64_t, std::string> scalars;
  for (const Fragment& fragment : table.fragments) {
    if (!fragment.box.start.empty()) continue;
    SS_ASSIGN_OR_RETURN(
        const File file,
        File::OpenForRead(JoinPath(directory, PartFileName(fragment.part))));
    SS_ASSIGN_OR_RETURN(StagingBuffer buffer, StagingBuffer::Take());
    SS_ASSIGN_OR_RETURN(const auto value,
                        ReadBlock(file, table, fragment, 0, buffer.bytes()));
    scalars.emplace(
        fragment.tensor,
        std::string(reinterpret_cast<const char*>(value.data()), value.size()));
  }
  return scalars;
}

}  // namespace

absl::StatusOr<Table> MergeReceipts(const CheckpointId& id,
                                    const std::vector<PartReceipt>& receipts,
                                    absl::string_view record) {
  TableBuilder builder;
  std::map<int64_t, Part> parts;
  for (const PartReceipt& receipt : receipts) {
    if (CheckpointId{receipt.table.step, receipt.table.state} != id) {
      return absl::InvalidArgumentError(absl::StrCat(
          "part ", receipt.part.number, " is of step ", receipt.table.step,
          " or of another state than step ", id.step, ", which is to be made"));
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
  table.record = std::string(record);
  for (const auto& [number, part] : parts) table.parts.push_back(part);
  SS_RETURN_IF_ERROR(CheckIndexTable(table));
  return table;
}

absl::Status WriteIndex(const std::string& directory, absl::string_view name,
                        const Table& table, int64_t max_viewed_fragments) {
  SS_ASSIGN_OR_RETURN(const auto scalars, ReadScalars(directory, table));
  const std::string path = JoinPath(directory, name);
  SS_ASSIGN_OR_RETURN(FileLayout layout, LayOutIndexFile(path, table, scalars,
                                                         max_viewed_fragments));
  SS_ASSIGN_OR_RETURN(const File file, File::Create(path));
  const UserBlock user_block = {
      .role = FileRole::kIndex,
      .table_offset_bytes = layout.table_offset_bytes};
  return SealFile(file, std::move(layout.image), user_block, EncodeTable(table),
                  {})
      .status();
}

}  // namespace shardshift::ckpt
