// SPDX-License-Identifier: Apache-2.0
#include "ckpt/block_reader.h"

#include <algorithm>
#include <utility>

#include "ckpt/block_io.h"
#include "ckpt/core/crc32.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::ckpt {

BlockReader::BlockReader(std::shared_ptr<const File> file, const Table& table,
                         const Fragment& fragment, int64_t block,
                         RangeCrcs* crcs)
    : file_(std::move(file)),
      table_(table),
      fragment_(fragment),
      block_(block),
      num_bytes_(BlockBytes(table, fragment, block)),
      crcs_(crcs) {}

absl::Status BlockReader::Read(int64_t begin, int64_t end,
                               std::span<std::byte> pages) {
  if (fragment_.codec != Codec::kNone) {
    if (!values_) SS_RETURN_IF_ERROR(Decompress());
    std::ranges::copy(values_->bytes().subspan(begin, end - begin),
                      pages.subspan(begin % kDirectBlockBytes).begin());
    return absl::OkStatus();
  }
  if (position_ < begin) {
    SS_ASSIGN_OR_RETURN(StagingBuffer unused, StagingBuffer::Take());
    SS_RETURN_IF_ERROR(ReadStored(position_, begin, unused.bytes()));
  }
  SS_RETURN_IF_ERROR(ReadStored(begin, end, pages));
  if (end < num_bytes_) return absl::OkStatus();
  return CheckAll();
}

absl::Status BlockReader::CheckAll() {
  if (!table_.is_foreign) {
    return CheckBlock(*file_, table_, fragment_, block_, checksum_.Digest());
  }
  // In another order than that of the file no range of it.
  if (crcs_ != nullptr && fragment_.column_pitch == 0) {
    crcs_->Add(fragment_.part, fragment_.blocks[block_].offset_bytes,
               {num_bytes_, crc32_});
  }
  return absl::OkStatus();
}

absl::Status BlockReader::Finish() {
  if (fragment_.codec != Codec::kNone || position_ == num_bytes_) {
    return absl::OkStatus();
  }
  SS_ASSIGN_OR_RETURN(StagingBuffer unused, StagingBuffer::Take());
  return Read(position_, num_bytes_, unused.bytes());
}

absl::Status BlockReader::ReadStored(int64_t begin, int64_t end,
                                     std::span<std::byte> pages) {
  const int64_t offset = fragment_.blocks[block_].offset_bytes;
  // Fragments of a page and more begin on one in our files: so do their blocks.
  const bool on_pages =
      offset % kDirectBlockBytes == 0 && fragment_.column_pitch == 0;
  const int64_t page = begin / kDirectBlockBytes * kDirectBlockBytes;
  const int64_t from = on_pages ? page : begin;
  const int64_t to =
      on_pages ? std::min(RoundUpToDirectBlock(end), num_bytes_) : end;
  SS_RETURN_IF_ERROR(ReadPlain(*file_, table_, fragment_, block_, from,
                               pages.subspan(from - page, to - from)));
  const auto bytes = pages.subspan(begin - page, end - begin);
  if (!table_.is_foreign) {
    checksum_.Update(bytes);
  } else if (crcs_ != nullptr) {
    crc32_ = UpdateCrc32(crc32_, bytes);
  }
  position_ = end;
  return absl::OkStatus();
}

absl::Status BlockReader::Decompress() {
  SS_ASSIGN_OR_RETURN(values_, StagingBuffer::Take());
  return ReadBlock(*file_, table_, fragment_, block_, values_->bytes())
      .status();
}

}  // namespace shardshift::ckpt
