// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/mlp.h"

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::trainer {

Mlp::Mlp(LayerContext& context, const std::string& layer)
    : context_(context),
      width_(context.model.ffn_hidden_size / context.mesh.layout().tensor),
      fc1_(context, absl::StrCat(layer, "mlp.fc1"),
           {.parts = context.model.swiglu ? 2 : 1}),
      fc2_(context, absl::StrCat(layer, "mlp.fc2")) {}

absl::Status Mlp::Forward(const float* x, int64_t rows, float* y,
                          Cache& cache) {
  cache.fc1 = Buffer(rows * fc1_.out());
  cache.activated = Buffer(rows * width_);
  SS_RETURN_IF_ERROR(fc1_.Forward(x, rows, cache.fc1.data()));
  if (context_.model.swiglu) {
    context_.kernels.swiglu_forward({.x = cache.fc1.data(),
                                     .rows = rows,
                                     .width = width_,
                                     .y = cache.activated.data()});
  } else {
    const auto gelu = context_.model.exact_gelu
                          ? context_.kernels.exact_gelu_forward
                          : context_.kernels.gelu_forward;
    gelu({.x = cache.fc1.data(),
          .count = rows * width_,
          .y = cache.activated.data()});
  }
  return fc2_.Forward(cache.activated.data(), rows, y);
}

absl::Status Mlp::Backward(const float* x, const float* dy, const Cache& cache,
                           const MicroBatch& batch, float* dx) {
  const int64_t rows = batch.num_samples * context_.seq_length;
  Buffer d_activated(rows * width_);
  SS_RETURN_IF_ERROR(
      fc2_.Backward(cache.activated.data(), dy, batch, d_activated.data()));
  Buffer d_fc1(rows * fc1_.out());
  if (context_.model.swiglu) {
    context_.kernels.swiglu_backward({.dy = d_activated.data(),
                                      .x = cache.fc1.data(),
                                      .rows = rows,
                                      .width = width_,
                                      .dx = d_fc1.data()});
  } else {
    const auto gelu = context_.model.exact_gelu
                          ? context_.kernels.exact_gelu_backward
                          : context_.kernels.gelu_backward;
    gelu({.dy = d_activated.data(),
          .x = cache.fc1.data(),
          .count = rows * width_,
          .dx = d_fc1.data()});
  }
  return fc1_.Backward(x, d_fc1.data(), batch, dx);
}

}  // namespace shardshift::trainer
