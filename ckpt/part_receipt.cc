// SPDX-License-Identifier: Apache-2.0
#include "ckpt/part_receipt.h"

#include <utility>

#include "ckpt/core/status_macros.h"
#include "ckpt/format/user_block.h"
#include "ckpt/io/file.h"

namespace shardshift::ckpt {

absl::StatusOr<PartReceipt> ReadReceipt(const std::string& path,
                                        int64_t number) {
  SS_ASSIGN_OR_RETURN(const File file, File::OpenForRead(path));
  SS_ASSIGN_OR_RETURN(const UserBlock block,
                      ReadUserBlock(file, FileRole::kPart));
  SS_ASSIGN_OR_RETURN(const auto bytes, ReadTableBytes(file, block));
  absl::StatusOr<Table> table = DecodePartTable(bytes, block.file_bytes);
  if (!table.ok()) return Annotate(table.status(), path);
  SS_RETURN_IF_ERROR(CheckMetadataDigest(file, block, PayloadRanges(*table)));
  const Part part = {number, block.file_bytes, block.metadata_digest};
  return PartReceipt{part, *std::move(table)};
}

}  // namespace shardshift::ckpt
