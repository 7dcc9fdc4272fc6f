// SPDX-License-Identifier: Apache-2.0
#include "tests/testutil/heap_peak.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace shardshift {
namespace {

std::atomic<int64_t> live_bytes = 0;
std::atomic<int64_t> peak_bytes = 0;

void* Take(size_t num_bytes) {
  void* const data = std::malloc(std::max<size_t>(num_bytes, 1));
  if (data == nullptr) return nullptr;
  const auto size = static_cast<int64_t>(::malloc_usable_size(data));
  const int64_t live = live_bytes += size;
  int64_t peak = peak_bytes;
  while (live > peak && !peak_bytes.compare_exchange_weak(peak, live)) {
  }
  return data;
}

void GiveBack(void* data) {
  if (data == nullptr) return;
  live_bytes -= static_cast<int64_t>(::malloc_usable_size(data));
  std::free(data);
}

}  // namespace

HeapPeak::HeapPeak() : start_bytes_(live_bytes) { peak_bytes = start_bytes_; }

int64_t HeapPeak::bytes() const { return peak_bytes - start_bytes_; }

}  // namespace shardshift

void* operator new(size_t num_bytes) {
  void* const data = shardshift::Take(num_bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}
void* operator new[](size_t num_bytes) { return ::operator new(num_bytes); }
void* operator new(size_t num_bytes, const std::nothrow_t&) noexcept {
  return shardshift::Take(num_bytes);
}
void operator delete(void* data) noexcept { shardshift::GiveBack(data); }
void operator delete[](void* data) noexcept { shardshift::GiveBack(data); }
void operator delete(void* data, size_t) noexcept {
  shardshift::GiveBack(data);
}
void operator delete[](void* data, size_t) noexcept {
  shardshift::GiveBack(data);
}
