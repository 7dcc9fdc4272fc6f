// SPDX-License-Identifier: Apache-2.0
#include "ckpt/writer.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "ckpt/codec/shuffle_zstd.h"
#include "ckpt/core/fingerprint.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/aligned_buffer.h"
#include "ckpt/io/worker_pool.h"
#include "ckpt/part_table.h"

namespace shardshift::ckpt {
namespace {

// What another thread may take for the blocks before one; whoever waits longer
// waits for a block that nobody writes.
constexpr std::chrono::minutes kTurnTimeout(10);

// Calls fn(offset, piece) for pieces that stay in a core's cache from one use
// to the next: what is done with a block reads memory once.
void ForEachPiece(
    std::span<const std::byte> bytes,
    absl::FunctionRef<void(size_t, std::span<const std::byte>)> fn) {
  constexpr size_t kPieceBytes = size_t{128} << 10;
  for (size_t offset = 0; offset < bytes.size(); offset += kPieceBytes) {
    fn(offset,
       bytes.subspan(offset, std::min(kPieceBytes, bytes.size() - offset)));
  }
}

// A full disk is to show before the work begins. Reserving the room would tell
// for sure, but a file system fills reserved room at a slower rate.
absl::Status CheckRoom(const std::string& path, int64_t num_bytes) {
  SS_ASSIGN_OR_RETURN(const int64_t free_bytes, FreeBytes(path));
  if (num_bytes <= free_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot write ", path, ": needs ", num_bytes, " bytes, ",
                   free_bytes, " are free"));
}

// Compresses `values`, a block of `fragment`, into `buffer`; gives what is
// stored.
absl::StatusOr<std::span<const std::byte>> Compress(
    const Table& table, const Fragment& fragment,
    std::span<const std::byte> values, StagingBuffer& buffer) {
  SS_ASSIGN_OR_RETURN(StagingBuffer scratch, StagingBuffer::Take());
  const auto planes = scratch.bytes().first(ChunkBytes(table, fragment));
  SS_ASSIGN_OR_RETURN(
      const int64_t stored_bytes,
      CompressBlock(values, ItemSize(table.tensors[fragment.tensor].dtype),
                    planes, buffer.bytes()));
  return buffer.bytes().first(stored_bytes);
}

}  // namespace

PartWriter::PartWriter(int64_t part, File file, PartLayout layout, Table table,
                       std::vector<int64_t> table_index)
    : BlockSink(std::move(table), std::move(table_index)),
      part_(part),
      file_(std::move(file)),
      layout_(std::move(layout)) {
  int64_t turn = 0;
  for (int64_t i = 0; i < num_specs(); ++i) {
    first_turn_.push_back(turn);
    if (Target(i).codec != Codec::kNone) turn += std::ssize(Target(i).blocks);
  }
}

absl::StatusOr<std::unique_ptr<PartWriter>> PartWriter::Create(
    const std::string& directory, int64_t part, const CheckpointId& id,
    const std::vector<FragmentSpec>& specs, Codec codec) {
  SS_ASSIGN_OR_RETURN(PartTable made, MakePartTable(part, id, specs, codec));
  const std::string path = JoinPath(directory, PartFileName(part));
  SS_ASSIGN_OR_RETURN(PartLayout layout,
                      PartLayout::Create(path, made.index, made.table));
  SS_ASSIGN_OR_RETURN(File file, File::Create(path, PageCache::kBypass));
  SS_ASSIGN_OR_RETURN(const int64_t known_bytes, layout.SizeSoFar());
  SS_RETURN_IF_ERROR(CheckRoom(path, known_bytes));
  return std::unique_ptr<PartWriter>(
      new PartWriter(part, std::move(file), std::move(layout),
                     std::move(made.table), std::move(made.index)));
}

absl::Status PartWriter::WriteBlock(int64_t fragment, int64_t block,
                                    std::span<const std::byte> bytes) {
  SS_RETURN_IF_ERROR(CheckBlockSize(fragment, block, bytes));
  const Fragment& target = Target(fragment);
  BoxFingerprint fingerprint = StartFingerprint(fragment, block);
  SS_ASSIGN_OR_RETURN(
      const uint64_t checksum,
      target.codec == Codec::kNone
          ? WritePlain(target.blocks[block], bytes, fingerprint)
          : WriteCompressed(fragment, block, bytes, fingerprint));
  return Record(fragment, block, checksum, fingerprint.fingerprint());
}

absl::StatusOr<uint64_t> PartWriter::WritePlain(
    const Block& block, std::span<const std::byte> bytes,
    BoxFingerprint& fingerprint) {
  std::optional<StagingBuffer> staging;
  std::span<const std::byte> aligned = bytes;
  if (!file_.TakesDirectly(bytes)) {
    SS_ASSIGN_OR_RETURN(staging, StagingBuffer::Take());
    aligned = staging->bytes().first(bytes.size());
  }
  Checksum64Stream checksum;
  ForEachPiece(bytes, [&](size_t offset, std::span<const std::byte> piece) {
    if (staging) {
      std::ranges::copy(piece, staging->bytes().subspan(offset).begin());
    }
    fingerprint.Update(piece);
    checksum.Update(piece);
  });
  SS_RETURN_IF_ERROR(file_.WriteAt(block.offset_bytes, aligned));
  return checksum.Digest();
}

absl::StatusOr<uint64_t> PartWriter::WriteCompressed(
    int64_t fragment, int64_t block, std::span<const std::byte> bytes,
    BoxFingerprint& fingerprint) {
  fingerprint.Update(bytes);
  Fragment& target = Target(fragment);
  SS_ASSIGN_OR_RETURN(StagingBuffer buffer, StagingBuffer::Take());
  const absl::StatusOr<std::span<const std::byte>> stored =
      Compress(table_, target, bytes, buffer);
  const absl::Status placed =
      stored.ok()
          ? PlaceInTurn(first_turn_[fragment] + block, target, block, *stored)
          : stored.status();
  if (!placed.ok()) {
    const std::lock_guard lock(mutex_);
    has_failed_ = true;
  }
  turn_passed_.notify_all();
  SS_RETURN_IF_ERROR(placed);
  SS_RETURN_IF_ERROR(file_.WriteAt(target.blocks[block].offset_bytes, *stored));
  return Checksum64(*stored);
}

absl::Status PartWriter::PlaceInTurn(int64_t turn, Fragment& target,
                                     int64_t block,
                                     std::span<const std::byte> stored) {
  std::unique_lock lock(mutex_);
  const bool is_in_time = turn_passed_.wait_for(
      lock, kTurnTimeout, [&] { return has_failed_ || next_turn_ >= turn; });
  const std::string what =
      absl::StrCat(Describe(table_, target), " block ", block);
  if (has_failed_) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": another block of ", file_.path(), " failed"));
  }
  if (next_turn_ > turn) {
    return absl::FailedPreconditionError(absl::StrCat(what, " came before"));
  }
  if (!is_in_time) {
    return absl::DeadlineExceededError(
        absl::StrCat(what, " of ", file_.path(), " waited ",
                     kTurnTimeout.count(), " minutes for a block before it"));
  }
  SS_RETURN_IF_ERROR(layout_.PlaceBlock(table_, target, block, stored));
  ++next_turn_;
  return absl::OkStatus();
}

absl::Status PartWriter::WriteAt(const Fragment& fragment, int64_t block,
                                 int64_t begin,
                                 std::span<const std::byte> bytes) {
  return file_.WriteAt(fragment.blocks[block].offset_bytes + begin, bytes);
}

absl::Status PartWriter::WriteFragments(
    std::span<const std::span<const std::byte>> images) {
  struct Task {
    int64_t fragment;
    int64_t block;
    std::span<const std::byte> bytes;
  };
  std::vector<Task> tasks;
  for (size_t f = 0; f < images.size(); ++f) {
    const std::span<const std::byte> image = images[f];
    const int64_t num_blocks = NumBlocks(static_cast<int64_t>(image.size()));
    for (int64_t b = 0; b < num_blocks; ++b) {
      const auto rest = image.subspan(b * kBlockBytes);
      tasks.push_back({static_cast<int64_t>(f), b,
                       rest.first(std::min<size_t>(rest.size(), kBlockBytes))});
    }
  }
  return WorkerPool::Default().Run(
      static_cast<int64_t>(tasks.size()), [&](int64_t t) {
        return WriteBlock(tasks[t].fragment, tasks[t].block, tasks[t].bytes);
      });
}

absl::StatusOr<PartReceipt> PartWriter::Close() {
  const std::lock_guard lock(mutex_);
  SS_RETURN_IF_ERROR(CheckComplete(file_.path()));
  const std::string table = EncodeTable(table_);
  SS_ASSIGN_OR_RETURN(FileLayout layout,
                      layout_.Finish(static_cast<int64_t>(table.size())));
  // The library chose the places.
  const Part self = {0, layout.image.file_bytes(), {}};
  SS_RETURN_IF_ERROR(CheckPlaces(table_, std::span(&self, 1)));
  const UserBlock user_block = {
      .role = FileRole::kPart, .table_offset_bytes = layout.table_offset_bytes};
  SS_ASSIGN_OR_RETURN(const UserBlock sealed,
                      SealFile(file_, std::move(layout.image), user_block,
                               table, PayloadRanges(table_)));
  const Part part = {part_, sealed.file_bytes, sealed.metadata_digest};
  return PartReceipt{part, std::move(table_)};
}

}  // namespace shardshift::ckpt
