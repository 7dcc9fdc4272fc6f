// Memory that direct I/O accepts.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_IO_ALIGNED_BUFFER_H_
#define SHARDSHIFT_CKPT_IO_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"

namespace shardshift::ckpt {

// Direct I/O asks that file offset and size be multiples of this, the largest
// logical block of a disk that Linux mounts on pages of 4 KiB. Of memory
// File::TakesDirectly() tells.
inline constexpr int64_t kDirectBlockBytes = 4096;

// `num_bytes` rounded up to whole direct blocks.
inline constexpr int64_t RoundUpToDirectBlock(int64_t num_bytes) {
  return (num_bytes + kDirectBlockBytes - 1) / kDirectBlockBytes *
         kDirectBlockBytes;
}

// Memory of AllocatePages().
class AlignedBuffer {
 public:
  // Room for `num_bytes`, rounded up to whole direct blocks. The content is
  // arbitrary: nothing is touched. Errors: InvalidArgument below 0,
  // ResourceExhausted.
  static absl::StatusOr<AlignedBuffer> Allocate(int64_t num_bytes);

  AlignedBuffer() = default;
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;

  std::span<std::byte> bytes() { return {data_.get(), num_bytes_}; }
  std::span<const std::byte> bytes() const { return {data_.get(), num_bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };

  std::unique_ptr<std::byte, Free> data_;
  size_t num_bytes_ = 0;
};

// An AlignedBuffer of one block as stored (kMaxStoredBytes, of which values
// take kBlockBytes), lent by a store of the process that keeps up to kMaxIdle
// of those given back: in the long run nothing is allocated. A task takes one
// for as long as it runs, or hands it on to the task that writes it; memory is
// bounded by how many are held at once.
class StagingBuffer {
 public:
  static constexpr int64_t kMaxIdle = 16;

  // Thread-safe. The content is arbitrary. Errors: ResourceExhausted.
  static absl::StatusOr<StagingBuffer> Take();

  StagingBuffer(StagingBuffer&&) noexcept = default;
  StagingBuffer& operator=(StagingBuffer&& other) noexcept;
  // Gives the buffer back.
  ~StagingBuffer();

  std::span<std::byte> bytes() { return buffer_.bytes(); }
  std::span<const std::byte> bytes() const { return buffer_.bytes(); }

 private:
  explicit StagingBuffer(AlignedBuffer buffer) : buffer_(std::move(buffer)) {}

  AlignedBuffer buffer_;
};

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_IO_ALIGNED_BUFFER_H_
