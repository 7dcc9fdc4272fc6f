// The feed-forward block: fc2(act(fc1(x))), plain GeLU, in either form,
// or gated SwiGLU.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_MLP_H_
#define SHARDSHIFT_TRAINER_LAYERS_MLP_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "trainer/buffer.h"
#include "trainer/layers/activation.h"
#include "trainer/layers/context.h"
#include "trainer/layers/parallel_linear.h"

namespace shardshift::trainer {

class Mlp {
 public:
  struct Cache {
    Buffer fc1;        // [R, fc1 out of this rank], before the activation
    Buffer activated;  // [R, F / TP]
  };

  // `prefix` is that of its parameters, "layers.3.mlp."; `width` is F.
  Mlp(LayerContext& context, const std::string& prefix, int64_t width);

  // x, y: [r, H]. `rows` is R. Gathers x, sums y.
  absl::Status Forward(const float* x, int64_t rows, float* y, Cache& cache);

  // dx: [r, H]. Gathers dy and x, sums dx.
  absl::Status Backward(const float* x, const float* dy, const Cache& cache,
                        const MicroBatch& batch, float* dx);

 private:
  LayerContext& context_;
  Activation activation_;
  int64_t width_;  // F / TP
  ColumnParallelLinear fc1_;
  RowParallelLinear fc2_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_MLP_H_
