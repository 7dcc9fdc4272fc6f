// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/activation.h"

namespace shardshift::trainer {

void Activation::Forward(const float* x, int64_t rows, int64_t width,
                         float* y) const {
  const kernels::Kernels& kernels = context_.kernels;
  if (context_.model.swiglu) {
    kernels.swiglu_forward({.x = x, .rows = rows, .width = width, .y = y});
  } else {
    const auto gelu = context_.model.exact_gelu ? kernels.exact_gelu_forward
                                                : kernels.gelu_forward;
    gelu({.x = x, .count = rows * width, .y = y});
  }
  context_.Round(y, rows * width);
}

void Activation::Backward(const float* dy, const float* x, int64_t rows,
                          int64_t width, float* dx) const {
  const kernels::Kernels& kernels = context_.kernels;
  if (context_.model.swiglu) {
    kernels.swiglu_backward(
        {.dy = dy, .x = x, .rows = rows, .width = width, .dx = dx});
  } else {
    const auto gelu = context_.model.exact_gelu ? kernels.exact_gelu_backward
                                                : kernels.gelu_backward;
    gelu({.dy = dy, .x = x, .count = rows * width, .dx = dx});
  }
  context_.Round(dx, rows * parts() * width);
}

}  // namespace shardshift::trainer
