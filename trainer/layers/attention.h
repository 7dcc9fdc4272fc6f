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
#include "kernels/kernels.h"
#include "trainer/buffer.h"
#include "trainer/layers/context.h"
#include "trainer/layers/parallel_linear.h"

namespace shardshift::trainer {

// cos and sin of every position, [positions, head/2] each; empty without RoPE.
struct RopeTable {
  Buffer cos;
  Buffer sin;
};

class Attention {
 public:
  struct Cache {
    Buffer qkv;      // [R, groups (heads + 2) head], after RoPE
    Buffer probs;    // [b, groups heads, S, S]
    Buffer context;  // [R, groups heads head]
  };

  // `layer` is the layer's prefix, "layers.3."; `rope` outlives the layer.
  Attention(LayerContext& context, const std::string& layer,
            const RopeTable& rope);

  // x, y: [R, H]. One all-reduce, and one all-gather if ranks share a group.
  absl::Status Forward(const float* x, int64_t rows, float* y, Cache& cache);

  // dx: [R, H]. One all-reduce, and one reduce-scatter if ranks share a group.
  absl::Status Backward(const float* x, const float* dy, const Cache& cache,
                        const MicroBatch& batch, float* dx);

 private:
  int64_t group_width() const { return (heads_ + 2) * head_dim_; }
  int64_t qkv_width() const { return groups_ * group_width(); }
  int64_t context_width() const { return groups_ * heads_ * head_dim_; }
  // The softmax scale, 1/sqrt(head).
  float scale() const;

  absl::Status GatherGroup(const Buffer& local, int64_t rows, Buffer& qkv);
  void Rotate(float* x, int64_t row_stride, int64_t num_heads, bool inverse);
  void ForwardCore(int64_t num_samples, Cache& cache);

  // The gradient of one query head: its queries in place, and its share of the
  // group's keys and values, [S, head] each.
  void BackwardHead(const Cache& cache, const float* d_context, int64_t sample,
                    int64_t group, int64_t head, float* d_qkv, float* d_key,
                    float* d_value);
  void BackwardWholeGroups(const Cache& cache, const float* d_context,
                           int64_t num_samples, float* d_qkv);
  absl::Status BackwardSharedGroup(const Cache& cache, const float* d_context,
                                   int64_t num_samples, float* d_local);

  LayerContext& context_;
  const RopeTable& rope_;
  int64_t head_dim_;
  int64_t groups_;  // query groups the core of this rank works on
  int64_t heads_;   // query heads of each of them
  ColumnParallelLinear qkv_;
  RowParallelLinear proj_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_ATTENTION_H_
