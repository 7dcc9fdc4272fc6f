// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/buffer_arena.h"

#include <algorithm>
#include <utility>

#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {

absl::StatusOr<std::span<std::byte>> BufferArena::Take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    const int64_t count =
        std::max<int64_t>(1, ckpt::kHugePageBytes / buffer_bytes_);
    SS_ASSIGN_OR_RETURN(ckpt::AlignedBuffer more,
                        ckpt::AlignedBuffer::Allocate(count * buffer_bytes_));
    for (int64_t i = 0; i < count; ++i) {
      free_.push_back(more.bytes().subspan(i * buffer_bytes_, buffer_bytes_));
    }
    memory_.push_back(std::move(more));
  }
  // The last given back is the one whose pages are warm.
  const std::span<std::byte> buffer = free_.back();
  free_.pop_back();
  return buffer;
}

void BufferArena::GiveBack(std::span<std::byte> buffer) {
  const std::lock_guard lock(mutex_);
  free_.push_back(buffer);
}

}  // namespace shardshift::reshard
