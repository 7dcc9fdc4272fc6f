// The table of kernels of one instruction set.
// All kernels are pure functions of their arguments: no state but reused
// scratch memory of the calling thread; any number of threads may call at once.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_KERNELS_H_
#define SHARDSHIFT_KERNELS_KERNELS_H_

#include "kernels/activation.h"
#include "kernels/adamw.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/isa.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "kernels/rounding.h"
#include "kernels/softmax.h"

namespace shardshift::kernels {

// Each member is described at its argument struct.
struct Kernels {
  void (*gemm)(const GemmArgs&);

  void (*add_bias)(const AddBiasArgs&);
  void (*column_sum)(const ColumnSumArgs&);
  void (*add)(const AddArgs&);
  void (*scale)(const ScaleArgs&);

  void (*rms_norm_forward)(const NormForwardArgs&);
  void (*rms_norm_backward)(const NormBackwardArgs&);
  void (*rms_norm_weight_grad)(const NormWeightGradArgs&);
  void (*layer_norm_forward)(const NormForwardArgs&);
  void (*layer_norm_backward)(const NormBackwardArgs&);
  void (*layer_norm_weight_grad)(const NormWeightGradArgs&);

  void (*gelu_forward)(const GeluForwardArgs&);
  void (*gelu_backward)(const GeluBackwardArgs&);
  void (*exact_gelu_forward)(const GeluForwardArgs&);
  void (*exact_gelu_backward)(const GeluBackwardArgs&);
  void (*swiglu_forward)(const SwigluForwardArgs&);
  void (*swiglu_backward)(const SwigluBackwardArgs&);

  void (*rope)(const RopeArgs&);
  void (*causal_softmax_forward)(const CausalSoftmaxForwardArgs&);
  void (*causal_softmax_backward)(const CausalSoftmaxBackwardArgs&);

  void (*embedding_lookup)(const EmbeddingLookupArgs&);
  void (*embedding_grad)(const EmbeddingGradArgs&);

  void (*row_max)(const RowMaxArgs&);
  void (*exp_sum)(const ExpSumArgs&);
  void (*predicted_logit)(const PredictedLogitArgs&);
  void (*cross_entropy_backward)(const CrossEntropyBackwardArgs&);

  void (*adamw)(const AdamWArgs&);

  void (*round_to_bf16)(const RoundArgs&);
  void (*round_to_fp16)(const RoundArgs&);
};

// The kernels for `isa`. kScalar is ref/: the definition of every result.
// REQUIRES: IsaSupported(isa) before any kernel of the table is called.
const Kernels& KernelsFor(Isa isa);

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_KERNELS_H_
