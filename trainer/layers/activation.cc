// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/activation.h"

namespace shardshift::trainer {

void Activation::Forward(const float* x, int64_t rows, int64_t width,
                         float* y) const {
  if (model_.swiglu) {
    kernels_.swiglu_forward({.x = x, .rows = rows, .width = width, .y = y});
    return;
  }
  const auto gelu =
      model_.exact_gelu ? kernels_.exact_gelu_forward : kernels_.gelu_forward;
  gelu({.x = x, .count = rows * width, .y = y});
}

void Activation::Backward(const float* dy, const float* x, int64_t rows,
                          int64_t width, float* dx) const {
  if (model_.swiglu) {
    kernels_.swiglu_backward(
        {.dy = dy, .x = x, .rows = rows, .width = width, .dx = dx});
    return;
  }
  const auto gelu =
      model_.exact_gelu ? kernels_.exact_gelu_backward : kernels_.gelu_backward;
  gelu({.dy = dy, .x = x, .count = rows * width, .dx = dx});
}

}  // namespace shardshift::trainer
