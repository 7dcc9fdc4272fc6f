// The norms of query and key heads, over the width of a head, before RoPE, as
// Megatron's q_layernorm and k_layernorm. The weights are one for all heads,
// and replicated.
//
// The gradient of the weights is a sum over heads, which tensor parallelism
// cuts: each query head has an accumulator of its own, a chain over the samples
// and positions of a group, and a tree over all query heads of the model sums
// up the group (invariant-numerics.md 2.3). What a query head does to the key
// it shares with others counts as the head's: the norm's backward is linear, so
// its keys' gradients go through it head by head.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_HEAD_NORMS_H_
#define SHARDSHIFT_TRAINER_LAYERS_HEAD_NORMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/tree.h"
#include "trainer/buffer.h"
#include "trainer/layers/context.h"

namespace shardshift::trainer {

class HeadNorms {
 public:
  enum class Kind { kQuery, kKey };

  // What is kept of one micro-batch, by head: all positions of one sample.
  struct Cache {
    Buffer x;     // [heads, S, head], before the norm
    Buffer mean;  // [heads, S]
    Buffer rstd;  // [heads, S]
  };

  // Whether a parameter of a rank, by name, is of such a norm: its gradient is
  // handed over a group of samples at a time.
  static bool Owns(absl::string_view parameter);

  // `layer` is the layer's prefix, "layers.3."; `local_heads` the query heads
  // of this rank, which is their run of the model's.
  HeadNorms(LayerContext& context, const std::string& layer,
            int64_t local_heads);

  // Room for `heads` heads, one sample of each.
  Cache MakeCache(int64_t heads) const;

  // Norms a head in place: row t is `head + t * row_stride`. `index` is its
  // place in the cache.
  void Forward(Kind kind, int64_t index, float* head, int64_t row_stride,
               Cache& cache) const;

  // Zeroes the accumulators if the sample is the first of a group.
  void OpenSample(int64_t sample);

  // The gradient of a head in place, laid out as above. `local_head` is the
  // query head it is of, or belongs to.
  void Backward(Kind kind, int64_t index, int64_t local_head,
                const Cache& cache, float* d_head, int64_t row_stride);

  // Ends a sample. With the last one of the batch the sums of all groups go
  // over the tensor-parallel ranks in one all-reduce, and to the gradients.
  absl::Status CloseSample(int64_t sample);

 private:
  struct Weights {
    int64_t weight;
    int64_t bias;  // -1: an RMSNorm, which has none
  };

  const Weights& Of(Kind kind) const {
    return kind == Kind::kQuery ? query_ : key_;
  }
  // The sums of one head: those of the queries, then of the keys; each for the
  // weight, then for the bias.
  int64_t sums_per_head() const { return 4 * head_dim_; }
  float* Sums(Kind kind, int64_t local_head) {
    return sums_.data() + local_head * sums_per_head() +
           (kind == Kind::kQuery ? 0 : 2 * head_dim_);
  }
  absl::Status SumOverRanks();
  void Store(int64_t entry, int64_t sample, const float* sum);

  LayerContext& context_;
  int64_t head_dim_;
  bool rms_;
  Weights query_;
  Weights key_;
  // Of the group that is open: [local heads, sums_per_head()].
  std::vector<float> sums_;
  // The rank's run of heads, as nodes of the tree over all.
  std::vector<kernels::TreeNode> nodes_;
  // The sums of each node, [closed groups, sums_per_head()], and the sample
  // that ended each group.
  std::vector<std::vector<float>> closed_;
  std::vector<int64_t> closing_samples_;
  Buffer head_;  // [S, head], scratch
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_HEAD_NORMS_H_
