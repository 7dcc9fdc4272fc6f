// LayerNorm or RMSNorm, as the model has it, replicated over tensor-parallel
// ranks, each norming the rows it has. Equations: kernels/norm.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_NORM_H_
#define SHARDSHIFT_TRAINER_LAYERS_NORM_H_

#include <cstdint>
#include <string>

#include "trainer/buffer.h"
#include "trainer/layers/context.h"

namespace shardshift::trainer {

class Norm {
 public:
  // Kept from forward to backward, [r] each.
  struct Stats {
    Buffer mean;
    Buffer rstd;
  };

  // `name` is "<layer>.weight" without the suffix.
  Norm(LayerContext& context, const std::string& name);

  // x, y: [rows, H].
  void Forward(const float* x, int64_t rows, float* y, Stats& stats) const;

  // Adds the gradients of weight and bias; dx: [r, H], overwritten; may be dy.
  void Backward(const float* x, const float* dy, const Stats& stats,
                const MicroBatch& batch, float* dx);

 private:
  void AddWeightGradient(const float* x, const float* dy, const Stats& stats,
                         const MicroBatch& batch);

  LayerContext& context_;
  int64_t weight_;
  int64_t bias_ = -1;
  bool rms_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_NORM_H_
