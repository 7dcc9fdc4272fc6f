// Work that the threads of a pool (thread_pool.h) may share. It includes no
// standard header with inline functions: see cpu/lanes.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_PARALLEL_H_
#define SHARDSHIFT_KERNELS_PARALLEL_H_

#include <cstdint>

namespace shardshift::kernels {

using RangeFunction = void (*)(const void* body, int64_t begin, int64_t end);

// ParallelRanges, of any body.
void RunRanges(int64_t count, int64_t item_ns, RangeFunction run,
               const void* body);

// Calls body(begin, end) for ranges that make up [0, count), one for each
// thread of the calling thread's pool, if each then has enough to do; else for
// the whole. An item takes about `item_ns` nanoseconds.
template <typename Body>
void ParallelRanges(int64_t count, int64_t item_ns, const Body& body) {
  RunRanges(
      count, item_ns,
      [](const void* any, int64_t begin, int64_t end) {
        (*static_cast<const Body*>(any))(begin, end);
      },
      &body);
}

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_PARALLEL_H_
