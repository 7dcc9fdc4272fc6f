// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/transformer_layer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::trainer {
namespace {

// sum += a
void Accumulate(const LayerContext& context, const Buffer& a, Buffer& sum) {
  context.kernels.add(
      {.a = sum.data(), .b = a.data(), .count = sum.size(), .out = sum.data()});
}

}  // namespace

TransformerLayer::TransformerLayer(LayerContext& context, int64_t layer,
                                   const RopeTable& rope)
    : TransformerLayer(context, absl::StrCat("layers.", layer, "."), rope) {}

TransformerLayer::TransformerLayer(LayerContext& context,
                                   const std::string& prefix,
                                   const RopeTable& rope)
    : context_(context),
      attention_norm_(context, absl::StrCat(prefix, "attention_norm")),
      attention_(context, prefix, rope),
      mlp_norm_(context, absl::StrCat(prefix, "mlp_norm")),
      mlp_(context, prefix) {}

absl::Status TransformerLayer::Forward(Buffer x, int64_t rows, Buffer& y,
                                       Cache& cache) {
  const int64_t size = x.size();
  cache.x = std::move(x);
  cache.attention_in = Buffer(size);
  attention_norm_.Forward(cache.x.data(), rows, cache.attention_in.data(),
                          cache.attention_stats);
  cache.h = Buffer(size);
  SS_RETURN_IF_ERROR(attention_.Forward(cache.attention_in.data(), rows,
                                        cache.h.data(), cache.attention));
  Accumulate(context_, cache.x, cache.h);

  cache.mlp_in = Buffer(size);
  mlp_norm_.Forward(cache.h.data(), rows, cache.mlp_in.data(), cache.mlp_stats);
  y = Buffer(size);
  SS_RETURN_IF_ERROR(
      mlp_.Forward(cache.mlp_in.data(), rows, y.data(), cache.mlp));
  Accumulate(context_, cache.h, y);
  return absl::OkStatus();
}

absl::Status TransformerLayer::Backward(const Cache& cache,
                                        const MicroBatch& batch, Buffer& dy) {
  Buffer branch(dy.size());
  SS_RETURN_IF_ERROR(mlp_.Backward(cache.mlp_in.data(), dy.data(), cache.mlp,
                                   batch, branch.data()));
  mlp_norm_.Backward(cache.h.data(), branch.data(), cache.mlp_stats, batch,
                     branch.data());
  Accumulate(context_, branch, dy);

  SS_RETURN_IF_ERROR(attention_.Backward(cache.attention_in.data(), dy.data(),
                                         cache.attention, batch,
                                         branch.data()));
  attention_norm_.Backward(cache.x.data(), branch.data(), cache.attention_stats,
                           batch, branch.data());
  Accumulate(context_, branch, dy);
  return absl::OkStatus();
}

}  // namespace shardshift::trainer
