// Memory for much data: whole pages, huge ones where the kernel has them.
// Touching it first, translating its addresses and handing it to a disk cost a
// fraction of what they cost with pages of 4 KiB.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_CORE_PAGE_MEMORY_H_
#define SHARDSHIFT_CKPT_CORE_PAGE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>
#include <vector>

namespace shardshift::ckpt {

inline constexpr int64_t kPageBytes = 4096;
inline constexpr int64_t kHugePageBytes = int64_t{2} << 20;

// Room for `num_bytes` that starts on a page, from kHugePageBytes on on a huge
// one; for std::free. Null if memory is short. The content is arbitrary:
// nothing is touched.
void* AllocatePages(size_t num_bytes);

// Allocates by AllocatePages(); what takes less than a page by ::operator new.
template <typename T>
class PageAllocator {
 public:
  using value_type = T;

  PageAllocator() = default;
  template <typename U>
  // NOLINTNEXTLINE(google-explicit-constructor): what containers convert by.
  PageAllocator(const PageAllocator<U>&) {}

  T* allocate(size_t count) {
    if (count > std::numeric_limits<size_t>::max() / sizeof(T)) {
      throw std::bad_array_new_length();
    }
    const size_t num_bytes = count * sizeof(T);
    if (IsSmall(num_bytes)) return static_cast<T*>(::operator new(num_bytes));
    void* data = AllocatePages(num_bytes);
    if (data == nullptr) throw std::bad_alloc();
    return static_cast<T*>(data);
  }
  void deallocate(T* data, size_t count) {
    if (IsSmall(count * sizeof(T))) {
      ::operator delete(data);
    } else {
      std::free(data);
    }
  }

  friend bool operator==(const PageAllocator&, const PageAllocator&) {
    return true;
  }

 private:
  static_assert(alignof(T) <= alignof(std::max_align_t));
  static bool IsSmall(size_t num_bytes) {
    return num_bytes < static_cast<size_t>(kPageBytes);
  }
};

template <typename T>
using PageVector = std::vector<T, PageAllocator<T>>;

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_CORE_PAGE_MEMORY_H_
