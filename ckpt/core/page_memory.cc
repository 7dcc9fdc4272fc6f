// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/page_memory.h"

#include <sys/mman.h>

namespace shardshift::ckpt {

void* AllocatePages(size_t num_bytes) {
  const bool is_large = num_bytes >= static_cast<size_t>(kHugePageBytes);
  void* data = nullptr;
  // On failure `data` stays null.
  (void)::posix_memalign(
      &data, static_cast<size_t>(is_large ? kHugePageBytes : kPageBytes),
      num_bytes);
  // A hint: without huge pages the memory is only slower.
  if (is_large && data != nullptr) {
    ::madvise(data, num_bytes, MADV_HUGEPAGE);
  }
  return data;
}

}  // namespace shardshift::ckpt
