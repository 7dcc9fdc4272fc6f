// SPDX-License-Identifier: Apache-2.0
#include "kernels/kernels.h"

#include "kernels/cpu/cpu.h"
#include "kernels/ref/ref.h"

namespace shardshift::kernels {
namespace {

Kernels ScalarTable() {
  Kernels table = {};
  ref::InstallGemm(table);
  ref::InstallElementwise(table);
  ref::InstallNorm(table);
  ref::InstallActivation(table);
  ref::InstallRope(table);
  ref::InstallSoftmax(table);
  ref::InstallEmbedding(table);
  ref::InstallCrossEntropy(table);
  ref::InstallAdamW(table);
  ref::InstallRounding(table);
  return table;
}

Kernels Avx2Table() {
  Kernels table = ScalarTable();
  avx2::InstallGemm(table);
  avx2::InstallElementwise(table);
  avx2::InstallNorm(table);
  avx2::InstallActivation(table);
  avx2::InstallRope(table);
  avx2::InstallSoftmax(table);
  avx2::InstallCrossEntropy(table);
  avx2::InstallAdamW(table);
  avx2::InstallRounding(table);
  return table;
}

Kernels Avx512Table() {
  Kernels table = ScalarTable();
  avx512::InstallGemm(table);
  avx512::InstallElementwise(table);
  avx512::InstallNorm(table);
  avx512::InstallActivation(table);
  avx512::InstallRope(table);
  avx512::InstallSoftmax(table);
  avx512::InstallCrossEntropy(table);
  avx512::InstallAdamW(table);
  avx512::InstallRounding(table);
  return table;
}

}  // namespace

const Kernels& KernelsFor(Isa isa) {
  static const Kernels scalar = ScalarTable();
  static const Kernels avx2 = Avx2Table();
  static const Kernels avx512 = Avx512Table();
  switch (isa) {
    case Isa::kScalar:
      return scalar;
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvx512:
      return avx512;
  }
  return scalar;
}

}  // namespace shardshift::kernels
