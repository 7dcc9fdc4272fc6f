// Memory that a thread's kernels reuse from call to call.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_CPU_SCRATCH_H_
#define SHARDSHIFT_KERNELS_CPU_SCRATCH_H_

#include <cstdint>

namespace shardshift::kernels {

// At least `count` floats with any contents, 64-byte aligned. The calling
// thread's next call may overwrite or free them.
float* ThreadScratch(int64_t count);

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_CPU_SCRATCH_H_
