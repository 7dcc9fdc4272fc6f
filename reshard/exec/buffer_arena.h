// Buffers of one size that streams hold for a while.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_BUFFER_ARENA_H_
#define SHARDSHIFT_RESHARD_EXEC_BUFFER_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "ckpt/core/page_memory.h"
#include "ckpt/io/aligned_buffer.h"

namespace shardshift::reshard {

// Cuts them from huge pages, which a disk takes at a multiple of the speed of
// small ones. Grows to what was lent at once; thread-safe.
class BufferArena {
 public:
  // `buffer_bytes`: whole pages.
  explicit BufferArena(int64_t buffer_bytes) : buffer_bytes_(buffer_bytes) {}

  // The content is arbitrary. Errors: ResourceExhausted.
  absl::StatusOr<std::span<std::byte>> Take();
  void GiveBack(std::span<std::byte> buffer);

 private:
  const int64_t buffer_bytes_;
  std::mutex mutex_;
  std::vector<ckpt::AlignedBuffer> memory_;
  std::vector<std::span<std::byte>> free_;
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_BUFFER_ARENA_H_
