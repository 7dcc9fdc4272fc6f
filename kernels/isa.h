// Which instruction sets the kernels can use on this processor.
// Every kernel gives the same bits on every instruction set.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_ISA_H_
#define SHARDSHIFT_KERNELS_ISA_H_

#include <string_view>

namespace shardshift::kernels {

// Ordered: a processor that supports one supports all before it. kAvx2 includes
// FMA; kAvx512 is F, BW, DQ and VL.
enum class Isa { kScalar, kAvx2, kAvx512 };

// The best supported instruction set. The environment variable
// SHARDSHIFT_ISA={scalar,avx2,avx512} lowers it; it never raises it, and any
// other value is ignored.
Isa DetectIsa();

// Whether processor and operating system support `isa`.
bool IsaSupported(Isa isa);

// "scalar", "avx2" or "avx512".
std::string_view IsaName(Isa isa);

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_ISA_H_
