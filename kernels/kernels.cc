// SPDX-License-Identifier: Apache-2.0
#include "kernels/kernels.h"

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
  return table;
}

}  // namespace

const Kernels& KernelsFor(Isa isa) {
  static const Kernels scalar = ScalarTable();
  (void)isa;
  return scalar;
}

}  // namespace shardshift::kernels
