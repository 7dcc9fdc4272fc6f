// The activation between the two products of a feed-forward block: GeLU, in
// either form, or gated SwiGLU.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_ACTIVATION_H_
#define SHARDSHIFT_TRAINER_LAYERS_ACTIVATION_H_

#include <cstdint>

#include "trainer/layers/context.h"

namespace shardshift::trainer {

class Activation {
 public:
  explicit Activation(const LayerContext& context) : context_(context) {}

  // Inputs for each output: 2 with a gate.
  int64_t parts() const { return context_.model.swiglu ? 2 : 1; }

  // x: [rows, parts() * width]; y: [rows, width].
  void Forward(const float* x, int64_t rows, int64_t width, float* y) const;

  // dy: [rows, width]; dx as x.
  void Backward(const float* dy, const float* x, int64_t rows, int64_t width,
                float* dx) const;

 private:
  const LayerContext& context_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_ACTIVATION_H_
