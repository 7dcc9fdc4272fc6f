// SPDX-License-Identifier: Apache-2.0
#include "ckpt/io/aligned_buffer.h"

#include <limits>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/checksum.h"
#include "ckpt/core/page_memory.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::ckpt {
namespace {

struct Store {
  std::mutex mutex;
  // The last given back is the first lent, as its pages are warm.
  std::vector<AlignedBuffer> idle;
};

// Never destroyed: a thread may give back while the process ends.
Store& StagingStore() {
  static Store& store = *new Store;
  return store;
}

}  // namespace

absl::StatusOr<AlignedBuffer> AlignedBuffer::Allocate(int64_t num_bytes) {
  if (num_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a buffer of ", num_bytes, " bytes: expected >= 0"));
  }
  AlignedBuffer buffer;
  if (num_bytes == 0) return buffer;
  if (num_bytes <= std::numeric_limits<int64_t>::max() - kDirectBlockBytes) {
    buffer.num_bytes_ = static_cast<size_t>(RoundUpToDirectBlock(num_bytes));
    buffer.data_.reset(
        static_cast<std::byte*>(AllocatePages(buffer.num_bytes_)));
  }
  if (buffer.data_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("out of memory: cannot allocate ", num_bytes, " bytes"));
  }
  return buffer;
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::move(other.data_)),
      num_bytes_(std::exchange(other.num_bytes_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  data_ = std::move(other.data_);
  num_bytes_ = std::exchange(other.num_bytes_, 0);
  return *this;
}

absl::StatusOr<StagingBuffer> StagingBuffer::Take() {
  Store& store = StagingStore();
  {
    const std::lock_guard lock(store.mutex);
    if (!store.idle.empty()) {
      StagingBuffer taken(std::move(store.idle.back()));
      store.idle.pop_back();
      return taken;
    }
  }
  SS_ASSIGN_OR_RETURN(AlignedBuffer buffer,
                      AlignedBuffer::Allocate(kMaxStoredBytes));
  return StagingBuffer(std::move(buffer));
}

StagingBuffer& StagingBuffer::operator=(StagingBuffer&& other) noexcept {
  std::swap(buffer_, other.buffer_);
  return *this;
}

StagingBuffer::~StagingBuffer() {
  if (buffer_.bytes().empty()) return;
  Store& store = StagingStore();
  const std::lock_guard lock(store.mutex);
  if (store.idle.size() < kMaxIdle) store.idle.push_back(std::move(buffer_));
}

}  // namespace shardshift::ckpt
