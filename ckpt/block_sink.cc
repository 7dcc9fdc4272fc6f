// SPDX-License-Identifier: Apache-2.0
#include "ckpt/block_sink.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/aligned_buffer.h"

namespace shardshift::ckpt {
namespace {

// From the last page of the file before a block to the block; none where
// elements would lie across the end of a buffer.
int64_t LeadBytes(const Table& table, const Fragment& fragment, int64_t block) {
  if (fragment.codec != Codec::kNone || fragment.column_pitch != 0) return 0;
  const int64_t lead = fragment.blocks[block].offset_bytes % kDirectBlockBytes;
  const int64_t item_size = ItemSize(table.tensors[fragment.tensor].dtype);
  return lead % item_size == 0 ? lead : 0;
}

}  // namespace

BlockSink::BlockSink(Table table, std::vector<int64_t> table_index)
    : table_(std::move(table)), table_index_(std::move(table_index)) {
  for (const int64_t index : table_index_) {
    const Fragment& fragment = table_.fragments[index];
    const Tensor& tensor = table_.tensors[fragment.tensor];
    const auto num_blocks = std::ssize(fragment.blocks);
    keys_.push_back(FingerprintKey(tensor.name, tensor.role, tensor.dtype));
    is_written_.emplace_back(num_blocks, false);
    blocks_left_ += num_blocks;
  }
}

BoxFingerprint BlockSink::StartFingerprint(int64_t fragment,
                                           int64_t block) const {
  const Fragment& target = Target(fragment);
  const Tensor& tensor = table_.tensors[target.tensor];
  return {keys_[fragment], tensor.dtype, tensor.shape, target.box,
          block * kBlockBytes};
}

absl::Status BlockSink::CheckBlockSize(int64_t fragment, int64_t block,
                                       std::span<const std::byte> bytes) const {
  const Fragment& target = Target(fragment);
  if (block >= std::ssize(target.blocks)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(table_, target), " has ", target.blocks.size(),
                     " blocks, not one of number ", block));
  }
  const int64_t expected = BlockBytes(table_, target, block);
  if (std::ssize(bytes) == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Describe(table_, target), " block ", block, ": ",
                   bytes.size(), " bytes, expected ", expected));
}

absl::Status BlockSink::Record(int64_t fragment, int64_t block,
                               uint64_t checksum,
                               const Fingerprint& fingerprint) {
  Fragment& target = Target(fragment);
  const std::lock_guard lock(mutex_);
  if (is_written_[fragment][block]) {
    return absl::FailedPreconditionError(absl::StrCat(
        Describe(table_, target), " block ", block, " came before"));
  }
  is_written_[fragment][block] = true;
  --blocks_left_;
  target.blocks[block].checksum = checksum;
  target.fingerprint += fingerprint;
  return absl::OkStatus();
}

absl::Status BlockSink::CheckComplete(const std::string& path) const {
  if (blocks_left_ == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path, ": ", blocks_left_, " blocks of payload have not come"));
}

BlockStream::BlockStream(BlockSink& sink, int64_t fragment, int64_t block,
                         std::span<std::byte> buffer)
    : sink_(sink),
      fragment_(fragment),
      block_(block),
      buffer_(buffer),
      target_(sink.Target(fragment)),
      num_bytes_(BlockBytes(sink.table_, target_, block)),
      lead_bytes_(LeadBytes(sink.table_, target_, block)),
      fingerprint_(sink.StartFingerprint(fragment, block)) {}

std::span<std::byte> BlockStream::room() const {
  const auto rest = buffer_.subspan(lead_bytes_ + num_held_);
  return rest.first(std::min<size_t>(rest.size(), num_bytes_ - num_done_));
}

absl::Status BlockStream::Advance(int64_t num_bytes) {
  const auto bytes = room().first(num_bytes);
  num_held_ += num_bytes;
  num_done_ += num_bytes;
  if (target_.codec == Codec::kNone) {
    if (!sink_.table_.is_foreign) checksum_.Update(bytes);
    fingerprint_.Update(bytes);
  }
  if (is_complete() || lead_bytes_ + num_held_ == std::ssize(buffer_)) {
    return Flush();
  }
  return absl::OkStatus();
}

absl::Status BlockStream::Flush() {
  // A full buffer ends with a page of the file.
  const auto held = buffer_.subspan(std::exchange(lead_bytes_, 0),
                                    std::exchange(num_held_, 0));
  if (target_.codec != Codec::kNone) {
    return sink_.WriteBlock(fragment_, block_, held);
  }
  SS_RETURN_IF_ERROR(
      sink_.WriteAt(target_, block_, num_done_ - std::ssize(held), held));
  if (!is_complete()) return absl::OkStatus();
  return sink_.Record(fragment_, block_, checksum_.Digest(),
                      fingerprint_.fingerprint());
}

}  // namespace shardshift::ckpt
