// SPDX-License-Identifier: Apache-2.0
#include "trainer/buffer.h"

#include <algorithm>

namespace shardshift::trainer {
namespace {

// One rank is one thread.
thread_local BufferUse use_of_this_thread;

}  // namespace

BufferUse ThreadBufferUse() { return use_of_this_thread; }

void ResetThreadBufferPeak() {
  use_of_this_thread.peak_bytes = use_of_this_thread.live_bytes;
}

Buffer::Buffer(int64_t size)
    : data_(new float[static_cast<size_t>(size)], Release{size}), size_(size) {
  BufferUse& use = use_of_this_thread;
  use.live_bytes += size * static_cast<int64_t>(sizeof(float));
  use.peak_bytes = std::max(use.peak_bytes, use.live_bytes);
}

void Buffer::Release::operator()(const float* data) const {
  use_of_this_thread.live_bytes -= size * static_cast<int64_t>(sizeof(float));
  delete[] data;
}

}  // namespace shardshift::trainer
