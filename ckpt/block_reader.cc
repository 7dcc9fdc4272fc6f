// SPDX-License-Identifier: Apache-2.0
#include "ckpt/block_reader.h"

#include <algorithm>
#include <utility>

#include "ckpt/block_io.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::ckpt {
namespace {

// As much as stays in a core's cache from the read to the checksum.
constexpr int64_t kPieceBytes = int64_t{4} << 20;

}  // namespace

BlockReader::BlockReader(std::shared_ptr<const File> file, const Table& table,
                         const Fragment& fragment, int64_t block)
    : file_(std::move(file)),
      table_(table),
      fragment_(fragment),
      block_(block),
      num_bytes_(std::min(
          kBlockBytes, FragmentBytes(table, fragment) - block * kBlockBytes)) {}

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
  return CheckBlock(*file_, table_, fragment_, block_, checksum_.Digest());
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
  const int64_t first_page = begin / kDirectBlockBytes * kDirectBlockBytes;
  // Fragments of a page and more begin on one: so do their blocks.
  const bool on_pages =
      fragment_.blocks[block_].offset_bytes % kDirectBlockBytes == 0;
  while (begin < end) {
    const int64_t from =
        on_pages ? begin / kDirectBlockBytes * kDirectBlockBytes : begin;
    const int64_t piece_end = std::min(end, from + kPieceBytes);
    const int64_t to =
        on_pages ? std::min(RoundUpToDirectBlock(piece_end), num_bytes_)
                 : piece_end;
    SS_RETURN_IF_ERROR(
        Annotate(file_->ReadAt(fragment_.blocks[block_].offset_bytes + from,
                               pages.subspan(from - first_page, to - from)),
                 Describe(table_, fragment_)));
    checksum_.Update(pages.subspan(begin - first_page, piece_end - begin));
    position_ = begin = piece_end;
  }
  return absl::OkStatus();
}

absl::Status BlockReader::Decompress() {
  SS_ASSIGN_OR_RETURN(values_, StagingBuffer::Take());
  return ReadBlock(*file_, table_, fragment_, block_, values_->bytes())
      .status();
}

}  // namespace shardshift::ckpt
