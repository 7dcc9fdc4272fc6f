// The end of the model: final norm, output layer, cross entropy over the
// vocabulary shards. Source: parallel-layout.md 4.8 and 4.9; order of sums:
// invariant-numerics.md 2.5 and 2.6.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_LOSS_HEAD_H_
#define SHARDSHIFT_TRAINER_LAYERS_LOSS_HEAD_H_

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "trainer/buffer.h"
#include "trainer/layers/context.h"
#include "trainer/layers/norm.h"
#include "trainer/layers/parallel_linear.h"

namespace shardshift::trainer {

class LossHead {
 public:
  struct Cache {
    Norm::Stats stats;
    Buffer normed;   // [r, H]
    Buffer logits;   // [R, padded vocabulary / TP]
    Buffer maximum;  // [R], over the whole vocabulary
    Buffer exp_sum;  // [R]
  };

  // With a tied embedding on one stage, its use as output layer is summed at
  // `tied_entry` of the gradients.
  LossHead(LayerContext& context, std::optional<int64_t> tied_entry);

  // x: [r, H]. sample_losses: [b], each the sum of the losses of the sample's
  // tokens, a double chain over positions. Gathers; two
  // all-reduces.
  absl::Status Forward(const float* x, const MicroBatch& batch, Cache& cache,
                       std::span<double> sample_losses);

  // The gradient of the sum of all token losses; dx: [r, H]. Consumes the
  // logits of the cache. Gathers, sums dx.
  absl::Status Backward(const float* x, const MicroBatch& batch, Cache& cache,
                        float* dx);

 private:
  void ScaleGradient(Buffer& d_logits) const;
  kernels::LogitsShard Shard(const Cache& cache, int64_t rows) const;

  LayerContext& context_;
  Norm norm_;
  ColumnParallelLinear output_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_LOSS_HEAD_H_
