// SPDX-License-Identifier: Apache-2.0
#include "ckpt/block_io.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

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

// A piece and the place where it is read to stay in a core's cache from the
// disk's copy over the checksum to the last use. A multiple of every item size
// and of direct blocks.
constexpr int64_t kPieceBytes = int64_t{1} << 20;

// Fills `bytes` with those of the row-major image of a fragment from byte
// `begin` on, which the file holds column by column.
absl::Status ReadColumns(const File& file, const Table& table,
                         const Fragment& fragment, int64_t begin,
                         std::span<std::byte> bytes) {
  const int64_t item_size = ItemSize(table.tensors[fragment.tensor].dtype);
  std::vector<std::byte> column;
  return ForEachColumnRun(
      fragment, begin / item_size, std::ssize(bytes) / item_size,
      [&](const ColumnRun& run) -> absl::Status {
        column.resize(run.count * item_size);
        SS_RETURN_IF_ERROR(file.ReadAt(
            fragment.blocks.front().offset_bytes + run.place * item_size,
            column));
        for (int64_t r = 0; r < run.count; ++r) {
          std::memcpy(bytes.data() + (run.first + r * run.stride) * item_size,
                      column.data() + r * item_size, item_size);
        }
        return absl::OkStatus();
      });
}

// Reads a block as it is stored, the piece at `offset` into place(offset,
// size), and shows each to `visit` before the block's checksum is known.
absl::Status ReadPieces(
    const File& file, const Table& table, const Fragment& fragment,
    int64_t block,
    absl::FunctionRef<std::span<std::byte>(int64_t offset, int64_t size)> place,
    absl::FunctionRef<void(int64_t offset, std::span<const std::byte> bytes)>
        visit) {
  const Block& stored = fragment.blocks[block];
  Checksum64Stream checksum;
  for (int64_t offset = 0; offset < stored.stored_bytes;
       offset += kPieceBytes) {
    const std::span<std::byte> bytes =
        place(offset, std::min(kPieceBytes, stored.stored_bytes - offset));
    SS_RETURN_IF_ERROR(ReadPlain(file, table, fragment, block, offset, bytes));
    if (!table.is_foreign) checksum.Update(bytes);
    visit(offset, bytes);
  }
  return CheckBlock(file, table, fragment, block, checksum.Digest());
}

}  // namespace

ElementRange BlockElements(const Table& table, const Fragment& fragment,
                           int64_t block) {
  const int64_t per_block =
      kBlockBytes / ItemSize(table.tensors[fragment.tensor].dtype);
  const int64_t begin = block * per_block;
  return {begin, std::min(begin + per_block, NumElements(fragment.box))};
}

absl::Status ForEachColumnRun(
    const Fragment& fragment, int64_t begin, int64_t count,
    absl::FunctionRef<absl::Status(const ColumnRun& run)> visit) {
  const int64_t num_columns = fragment.box.extent[1];
  const int64_t end = begin + count;
  for (int64_t c = 0; c < num_columns; ++c) {
    // The rows whose element in this column lies in the range.
    const int64_t first_row = (begin - c + num_columns - 1) / num_columns;
    const int64_t end_row = (end - c + num_columns - 1) / num_columns;
    if (first_row >= end_row) continue;
    SS_RETURN_IF_ERROR(visit({.place = c * fragment.column_pitch + first_row,
                              .first = first_row * num_columns + c - begin,
                              .stride = num_columns,
                              .count = end_row - first_row}));
  }
  return absl::OkStatus();
}

absl::Status ReadPlain(const File& file, const Table& table,
                       const Fragment& fragment, int64_t block, int64_t begin,
                       std::span<std::byte> bytes) {
  const absl::Status status =
      fragment.column_pitch == 0
          ? file.ReadAt(fragment.blocks[block].offset_bytes + begin, bytes)
          : ReadColumns(file, table, fragment, block * kBlockBytes + begin,
                        bytes);
  return Annotate(status, Describe(table, fragment));
}

absl::Status CheckBlock(const File& file, const Table& table,
                        const Fragment& fragment, int64_t block,
                        uint64_t checksum) {
  if (table.is_foreign || checksum == fragment.blocks[block].checksum) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat(Place(file, table, fragment, block), ": checksum differs"));
}

absl::StatusOr<std::span<const std::byte>> ReadStoredBlock(
    const File& file, const Table& table, const Fragment& fragment,
    int64_t block, std::span<std::byte> buffer) {
  const auto stored_bytes =
      static_cast<size_t>(fragment.blocks[block].stored_bytes);
  SS_RETURN_IF_ERROR(ReadPieces(
      file, table, fragment, block,
      [buffer](int64_t offset, int64_t size) {
        return buffer.subspan(offset, size);
      },
      [](int64_t, std::span<const std::byte>) {}));
  return buffer.first(stored_bytes);
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

absl::Status StreamBlock(
    const File& file, const Table& table, const Fragment& fragment,
    int64_t block, std::span<std::byte> buffer,
    absl::FunctionRef<void(ElementRange elements,
                           std::span<const std::byte> values)>
        visit) {
  const ElementRange elements = BlockElements(table, fragment, block);
  if (fragment.codec != Codec::kNone) {
    SS_ASSIGN_OR_RETURN(const auto values,
                        ReadBlock(file, table, fragment, block, buffer));
    visit(elements, values);
    return absl::OkStatus();
  }
  const int64_t item_size = ItemSize(table.tensors[fragment.tensor].dtype);
  return ReadPieces(
      file, table, fragment, block,
      [buffer](int64_t, int64_t size) { return buffer.first(size); },
      [&](int64_t offset, std::span<const std::byte> values) {
        const int64_t begin = elements.begin + offset / item_size;
        visit({begin, begin + std::ssize(values) / item_size}, values);
      });
}

}  // namespace shardshift::ckpt
