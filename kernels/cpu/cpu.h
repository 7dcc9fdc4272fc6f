// The vector kernels: one source, built once for each instruction set into a
// namespace of its own. They give ref/'s bits, faster.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_CPU_CPU_H_
#define SHARDSHIFT_KERNELS_CPU_CPU_H_

#include "kernels/kernels.h"

namespace shardshift::kernels {

// Each fills in the table's members of its family. Families that only copy and
// add are not here: ref/ serves them at the speed of memory.
namespace avx2 {
void InstallGemm(Kernels& table);
void InstallElementwise(Kernels& table);
void InstallNorm(Kernels& table);
void InstallActivation(Kernels& table);
void InstallRope(Kernels& table);
void InstallSoftmax(Kernels& table);
void InstallCrossEntropy(Kernels& table);
void InstallAdamW(Kernels& table);
void InstallRounding(Kernels& table);
}  // namespace avx2

namespace avx512 {
void InstallGemm(Kernels& table);
void InstallElementwise(Kernels& table);
void InstallNorm(Kernels& table);
void InstallActivation(Kernels& table);
void InstallRope(Kernels& table);
void InstallSoftmax(Kernels& table);
void InstallCrossEntropy(Kernels& table);
void InstallAdamW(Kernels& table);
void InstallRounding(Kernels& table);
}  // namespace avx512

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_CPU_CPU_H_
