// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/mlp.h"

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::trainer {

Mlp::Mlp(LayerContext& context, const std::string& prefix, int64_t width)
    : context_(context),
      activation_(context),
      width_(width / context.mesh.layout().tensor),
      fc1_(context, absl::StrCat(prefix, "fc1"),
           {.parts = activation_.parts()}),
      fc2_(context, absl::StrCat(prefix, "fc2")) {}

absl::Status Mlp::Forward(const float* x, int64_t rows, float* y,
                          Cache& cache) {
  cache.fc1 = Buffer(rows * fc1_.out());
  cache.activated = Buffer(rows * width_);
  SS_RETURN_IF_ERROR(fc1_.Forward(x, rows, cache.fc1.data()));
  activation_.Forward(cache.fc1.data(), rows, width_, cache.activated.data());
  return fc2_.Forward(cache.activated.data(), rows, y);
}

absl::Status Mlp::Backward(const float* x, const float* dy, const Cache& cache,
                           const MicroBatch& batch, float* dx) {
  const int64_t rows = batch.num_samples * context_.seq_length;
  Buffer d_activated(rows * width_);
  SS_RETURN_IF_ERROR(
      fc2_.Backward(cache.activated.data(), dy, batch, d_activated.data()));
  Buffer d_fc1(rows * fc1_.out());
  activation_.Backward(d_activated.data(), cache.fc1.data(), rows, width_,
                       d_fc1.data());
  return fc1_.Backward(x, d_fc1.data(), batch, dx);
}

}  // namespace shardshift::trainer
