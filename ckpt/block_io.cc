// SPDX-License-Identifier: Apache-2.0
#include "ckpt/block_io.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ckpt/codec/shuffle_zstd.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/aligned_buffer.h"

namespace shardshift::ckpt {
namespace {

// Replaces the first stored_bytes of `buffer`, a block as it is stored, by its
// values, which it gives.
absl::StatusOr<std::span<const std::byte>> Decompress(
    const Table& table, const Fragment& fragment, int64_t block,
    std::span<std::byte> buffer) {
  SS_ASSIGN_OR_RETURN(StagingBuffer scratch, StagingBuffer::Take());
  const auto planes = scratch.bytes().first(ChunkBytes(table, fragment));
  const int64_t item_size = ItemSize(table.tensors[fragment.tensor].dtype);
  const ElementRange elements = BlockElements(table, fragment, block);
  const auto values = buffer.first((elements.end - elements.begin) * item_size);
  SS_RETURN_IF_ERROR(
      DecompressBlock(buffer.first(fragment.blocks[block].stored_bytes),
                      item_size, planes, values));
  return values;
}

// Where a block is, for messages.
std::string Place(const File& file, const Table& table,
                  const Fragment& fragment, int64_t block) {
  const Block& stored = fragment.blocks[block];
  return absl::StrCat(file.path(), ": ", Describe(table, fragment), ", the ",
                      stored.stored_bytes, " bytes at byte ",
                      stored.offset_bytes, " of the file");
}

}  // namespace

ElementRange BlockElements(const Table& table, const Fragment& fragment,
                           int64_t block) {
  const int64_t per_block =
      kBlockBytes / ItemSize(table.tensors[fragment.tensor].dtype);
  const int64_t begin = block * per_block;
  return {begin, std::min(begin + per_block, NumElements(fragment.box))};
}

absl::StatusOr<std::span<const std::byte>> ReadStoredBlock(
    const File& file, const Table& table, const Fragment& fragment,
    int64_t block, std::span<std::byte> buffer) {
  const Block& stored = fragment.blocks[block];
  const auto bytes = buffer.first(static_cast<size_t>(stored.stored_bytes));
  SS_RETURN_IF_ERROR(Annotate(file.ReadAt(stored.offset_bytes, bytes),
                              Describe(table, fragment)));
  if (Checksum64(bytes) == stored.checksum) return bytes;
  return absl::DataLossError(
      absl::StrCat(Place(file, table, fragment, block), ": checksum differs"));
}

absl::StatusOr<std::span<const std::byte>> ReadBlock(
    const File& file, const Table& table, const Fragment& fragment,
    int64_t block, std::span<std::byte> buffer) {
  absl::StatusOr<std::span<const std::byte>> bytes =
      ReadStoredBlock(file, table, fragment, block, buffer);
  if (!bytes.ok() || fragment.codec == Codec::kNone) return bytes;
  bytes = Decompress(table, fragment, block, buffer);
  if (bytes.ok()) return bytes;
  return Annotate(bytes.status(), Place(file, table, fragment, block));
}

}  // namespace shardshift::ckpt
