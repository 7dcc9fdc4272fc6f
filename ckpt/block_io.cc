// SPDX-License-Identifier: Apache-2.0
#include "ckpt/block_io.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::ckpt {

ElementRange BlockElements(const Table& table, const Fragment& fragment,
                           int64_t block) {
  const int64_t per_block =
      kBlockBytes / ItemSize(table.tensors[fragment.tensor].dtype);
  const int64_t begin = block * per_block;
  return {begin, std::min(begin + per_block, NumElements(fragment.box))};
}

absl::StatusOr<std::span<const std::byte>> ReadBlock(const File& file,
                                                     const Table& table,
                                                     const Fragment& fragment,
                                                     int64_t block,
                                                     StagingBuffer& buffer) {
  const Block& stored = fragment.blocks[block];
  const auto bytes =
      buffer.bytes().first(static_cast<size_t>(stored.stored_bytes));
  SS_RETURN_IF_ERROR(file.ReadAt(stored.offset_bytes, bytes));
  if (Checksum64(bytes) == stored.checksum) return bytes;
  return absl::DataLossError(
      absl::StrCat(file.path(), ": ", Describe(table, fragment), ", the ",
                   stored.stored_bytes, " bytes at byte ", stored.offset_bytes,
                   " of the file: checksum differs"));
}

}  // namespace shardshift::ckpt
