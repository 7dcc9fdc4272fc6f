// The scalar kernels: plain loops that define every result bit for bit.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_REF_REF_H_
#define SHARDSHIFT_KERNELS_REF_REF_H_

#include "kernels/kernels.h"

namespace shardshift::kernels::ref {

// Each fills in the table's members of its family.
void InstallGemm(Kernels& table);
void InstallElementwise(Kernels& table);
void InstallNorm(Kernels& table);
void InstallActivation(Kernels& table);
void InstallRope(Kernels& table);
void InstallSoftmax(Kernels& table);
void InstallEmbedding(Kernels& table);
void InstallCrossEntropy(Kernels& table);
void InstallAdamW(Kernels& table);
void InstallRounding(Kernels& table);

}  // namespace shardshift::kernels::ref

#endif  // SHARDSHIFT_KERNELS_REF_REF_H_
