// SPDX-License-Identifier: Apache-2.0
#include "ckpt/foreign_writer.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/block_io.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/crc32.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/part_table.h"

namespace shardshift::ckpt {
namespace {

// Worth a request of its own to the disk, while more is on its way.
constexpr int64_t kSyncedBytes = int64_t{128} << 10;

absl::Status CheckPlace(const ForeignFile& file, size_t spec,
                        int64_t num_bytes) {
  const ForeignPlace& place = file.places[spec];
  if (place.column_pitch != 0 ||
      (place.offset_bytes >= 0 &&
       place.offset_bytes + num_bytes <= file.file_bytes)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      file.name, ": ", num_bytes, " bytes of ", file.specs[spec].tensor,
      " at byte ", place.offset_bytes, " are outside its ", file.file_bytes));
}

absl::Status WriteFixed(const File& file,
                        const std::vector<FixedBytes>& fixed) {
  for (const FixedBytes& piece : fixed) {
    SS_RETURN_IF_ERROR(file.WriteAt(piece.offset_bytes, AsBytes(piece.bytes)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteFileWithoutTensors(const std::string& directory,
                                     const ForeignFile& file) {
  SS_ASSIGN_OR_RETURN(const File out,
                      File::Create(JoinPath(directory, file.name)));
  SS_RETURN_IF_ERROR(out.Allocate(file.file_bytes));
  SS_RETURN_IF_ERROR(WriteFixed(out, file.fixed));
  if (file.finish) SS_RETURN_IF_ERROR(WriteFixed(out, file.finish({})));
  return out.Sync();
}

absl::StatusOr<std::unique_ptr<ForeignWriter>> ForeignWriter::Create(
    const std::string& directory, const ForeignFile& file,
    const CheckpointId& id) {
  SS_ASSIGN_OR_RETURN(PartTable made,
                      MakePartTable(/*part=*/0, id, file.specs, Codec::kNone));
  made.table.is_foreign = true;
  for (size_t i = 0; i < file.specs.size(); ++i) {
    Fragment& fragment = made.table.fragments[made.index[i]];
    const int64_t num_bytes = FragmentBytes(made.table, fragment);
    SS_RETURN_IF_ERROR(CheckPlace(file, i, num_bytes));
    PlaceForeign(file.places[i], num_bytes, fragment);
  }
  SS_ASSIGN_OR_RETURN(File out, File::Create(JoinPath(directory, file.name),
                                             PageCache::kBypass));
  SS_RETURN_IF_ERROR(out.Allocate(file.file_bytes));
  SS_RETURN_IF_ERROR(WriteFixed(out, file.fixed));
  return std::unique_ptr<ForeignWriter>(new ForeignWriter(
      std::move(out), file, std::move(made.table), std::move(made.index)));
}

ForeignWriter::ForeignWriter(File file, const ForeignFile& plan, Table table,
                             std::vector<int64_t> table_index)
    : BlockSink(std::move(table), std::move(table_index)),
      file_(std::move(file)),
      plan_(plan) {
  for (const Fragment& fragment : table_.fragments) {
    crcs_.emplace_back(fragment.blocks.size(), 0);
  }
}

uint32_t ForeignWriter::ImageCrc(int64_t fragment) const {
  const Fragment& target = Target(fragment);
  const std::vector<uint32_t>& crcs = crcs_[&target - table_.fragments.data()];
  uint32_t crc = 0;
  for (size_t b = 0; b < crcs.size(); ++b) {
    crc = CombineCrc32(crc, crcs[b],
                       BlockBytes(table_, target, static_cast<int64_t>(b)));
  }
  return crc;
}

absl::Status ForeignWriter::WriteBlock(int64_t fragment, int64_t block,
                                       std::span<const std::byte> bytes) {
  SS_RETURN_IF_ERROR(CheckBlockSize(fragment, block, bytes));
  SS_RETURN_IF_ERROR(WriteAt(Target(fragment), block, 0, bytes));
  BoxFingerprint fingerprint = StartFingerprint(fragment, block);
  fingerprint.Update(bytes);
  return Record(fragment, block, /*checksum=*/0, fingerprint.fingerprint());
}

absl::Status ForeignWriter::WriteAt(const Fragment& fragment, int64_t block,
                                    int64_t begin,
                                    std::span<const std::byte> bytes) {
  const int64_t offset = fragment.blocks[block].offset_bytes;
  if (plan_.finish) {
    // The bytes of a block come in order.
    uint32_t& crc = crcs_[&fragment - table_.fragments.data()][block];
    crc = UpdateCrc32(crc, bytes);
  }
  if (fragment.column_pitch == 0) {
    SS_RETURN_IF_ERROR(file_.WriteAt(offset + begin, bytes));
    if (!file_.bypasses_cache() && std::ssize(bytes) >= kSyncedBytes) {
      file_.StartSync(offset + begin, std::ssize(bytes));
    }
    return absl::OkStatus();
  }
  const int64_t item_size = ItemSize(table_.tensors[fragment.tensor].dtype);
  return ForEachColumnRun(
      fragment, (block * kBlockBytes + begin) / item_size,
      std::ssize(bytes) / item_size, [&](const ColumnRun& run) -> absl::Status {
        std::vector<std::byte> column(run.count * item_size);
        for (int64_t r = 0; r < run.count; ++r) {
          std::memcpy(column.data() + r * item_size,
                      bytes.data() + (run.first + r * run.stride) * item_size,
                      item_size);
        }
        return file_.WriteAt(offset + run.place * item_size, column);
      });
}

absl::StatusOr<PartReceipt> ForeignWriter::Close() {
  const std::lock_guard lock(mutex_);
  SS_RETURN_IF_ERROR(CheckComplete(file_.path()));
  if (plan_.finish) {
    std::vector<uint32_t> crcs;
    for (int64_t i = 0; i < num_specs(); ++i) crcs.push_back(ImageCrc(i));
    SS_RETURN_IF_ERROR(WriteFixed(file_, plan_.finish(crcs)));
  }
  SS_RETURN_IF_ERROR(file_.Sync());
  SS_ASSIGN_OR_RETURN(const int64_t file_bytes, file_.Size());
  return PartReceipt{{0, file_bytes, {}}, std::move(table_)};
}

}  // namespace shardshift::ckpt
