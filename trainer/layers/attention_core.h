// What lies between the projections of attention: for every query head that a
// rank has, norm, rotation, causal softmax over the keys of its group, dropout,
// and the values they weigh. Source: Vaswani et al. 2017; Ainslie et al. 2023
// (grouped queries); order of sums: invariant-numerics.md 2.7.
//
// Rows of the fused projection hold, group by group, the query heads, the key
// head and the value head.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_ATTENTION_CORE_H_
#define SHARDSHIFT_TRAINER_LAYERS_ATTENTION_CORE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "trainer/buffer.h"
#include "trainer/layers/context.h"
#include "trainer/layers/dropout.h"
#include "trainer/layers/head_norms.h"
#include "trainer/layers/rope_table.h"

namespace shardshift::trainer {

class AttentionCore {
 public:
  struct Cache {
    Buffer qkv;      // [R, qkv_width()], as the scores are made of it
    Buffer probs;    // [b, groups heads, S, S]; empty if recomputed
    Buffer context;  // [R, context_width()]
    HeadNorms::Cache norms;
  };

  // One query head of a micro-batch.
  struct Head {
    int64_t sample = 0;  // of the micro-batch
    int64_t group = 0;
    int64_t head = 0;  // of the group
  };

  // Its gradient: the queries' in place in d_qkv, [R, qkv_width()], and its
  // share of those of its group's keys and values, [S, head] each.
  struct HeadGradient {
    float* d_qkv = nullptr;
    float* d_key = nullptr;
    float* d_value = nullptr;
  };

  // `layer` is the layer's prefix, "layers.3."; `rope` outlives the core.
  AttentionCore(LayerContext& context, const std::string& layer,
                const RopeTable& rope);

  int64_t head_dim() const { return head_dim_; }
  int64_t groups() const { return groups_; }  // of this rank
  int64_t heads() const { return heads_; }    // of each of them, on this rank
  int64_t group_width() const { return (heads_ + 2) * head_dim_; }
  int64_t qkv_width() const { return groups_ * group_width(); }
  int64_t context_width() const { return groups_ * heads_ * head_dim_; }

  // Room for `num_samples` samples.
  Cache MakeCache(int64_t num_samples) const;

  // cache.qkv holds the projection; fills the rest.
  void Forward(const MicroBatch& batch, Cache& cache);

  // d_context: [R, context_width()].
  void BackwardHead(const Cache& cache, const float* d_context,
                    const MicroBatch& batch, const Head& head,
                    const HeadGradient& gradient);

  // Before the first and after the last head of sample `sample` of the rank's
  // share of the batch. Collective over the tensor-parallel ranks.
  void OpenSample(int64_t sample);
  absl::Status CloseSample(int64_t sample);

 private:
  // The softmax scale, 1/sqrt(head).
  float scale() const;
  // Where a group's key head is among the heads that are normed.
  int64_t NormIndex(const Head& head) const {
    return (head.sample * groups_ + head.group) * (heads_ + 1) + head.head;
  }
  void Rotate(float* x, int64_t row_stride, int64_t num_heads, bool inverse);
  void PrepareGroup(int64_t sample, int64_t group, Cache& cache);
  bool recomputes_probs() const {
    return context_.activations.recompute.granularity ==
           RecomputeGranularity::kSelective;
  }
  int64_t Index(const Head& head) const {  // among the rank's query heads
    return head.group * heads_ + head.head;
  }
  // Where the probabilities of a head are kept.
  int64_t ProbsAt(const Head& head) const {
    return (head.sample * groups_ * heads_ + Index(head)) *
           context_.seq_length * context_.seq_length;
  }
  // [S, S].
  void Probabilities(const Cache& cache, const Head& head, float* probs);
  void ForwardHead(const MicroBatch& batch, const Head& head, Cache& cache);
  void BackwardQueryAndKey(const Cache& cache, const Head& head, float* d_query,
                           float* d_key);

  LayerContext& context_;
  const RopeTable& rope_;
  int64_t head_dim_;
  int64_t groups_;
  int64_t heads_;
  AttentionDropout dropout_;
  std::optional<HeadNorms> norms_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_ATTENTION_CORE_H_
