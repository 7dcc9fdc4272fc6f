// Causal self-attention with grouped queries, cut over tensor-parallel ranks by
// heads. Source: Vaswani et al. 2017; Ainslie et al. 2023 (grouped queries);
// parallel-layout.md 4.6.
//
// A rank computes np/TP query heads. The fused projection [q heads, k, v of
// each group] is cut into equal runs of rows; with at least TP groups these are
// whole groups. With fewer, the ranks of a group gather its columns before the
// core, and the gradient is scattered back.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_ATTENTION_H_
#define SHARDSHIFT_TRAINER_LAYERS_ATTENTION_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "trainer/buffer.h"
#include "trainer/layers/attention_core.h"
#include "trainer/layers/context.h"
#include "trainer/layers/parallel_linear.h"
#include "trainer/layers/rope_table.h"

namespace shardshift::trainer {

class Attention {
 public:
  using Cache = AttentionCore::Cache;

  // `layer` is the layer's prefix, "layers.3."; `rope` outlives the layer.
  Attention(LayerContext& context, const std::string& layer,
            const RopeTable& rope);

  // x, y: [r, H]. Gathers x, sums y; one all-gather if ranks share
  // a group.
  absl::Status Forward(const float* x, const MicroBatch& batch, float* y,
                       Cache& cache);

  // dx: [r, H]. Gathers dy and x, sums dx; one reduce-scatter if ranks share a
  // group; with norms of the heads, a small all-reduce after the last sample.
  absl::Status Backward(const float* x, const float* dy, const Cache& cache,
                        const MicroBatch& batch, float* dx);

 private:
  absl::Status GatherGroup(const Buffer& local, int64_t rows, Buffer& qkv);
  absl::Status BackwardWholeGroups(const Cache& cache, const float* d_context,
                                   const MicroBatch& batch, float* d_qkv);
  absl::Status BackwardSharedGroup(const Cache& cache, const float* d_context,
                                   const MicroBatch& batch, float* d_local);

  LayerContext& context_;
  AttentionCore core_;
  ColumnParallelLinear qkv_;
  RowParallelLinear proj_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_ATTENTION_H_
