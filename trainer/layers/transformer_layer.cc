// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/transformer_layer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/layout/tensor_schema.h"

namespace shardshift::trainer {
namespace {

// sum += a
void Accumulate(const LayerContext& context, const Buffer& a, Buffer& sum) {
  context.kernels.add(
      {.a = sum.data(), .b = a.data(), .count = sum.size(), .out = sum.data()});
  context.Round(sum.data(), sum.size());
}

// The gradient behind a dropout: that of its output, or a copy of it with
// holes.
class BehindDropout {
 public:
  BehindDropout(const HiddenDropout& dropout, const MicroBatch& batch,
                const Buffer& dy)
      : data_(dy.data()) {
    if (!dropout.is_on()) return;
    copy_ = Buffer(dy.size());
    dropout.Apply(batch, dy.data(), copy_.data());
    data_ = copy_.data();
  }

  const float* data() const { return data_; }

 private:
  Buffer copy_;
  const float* data_;
};

}  // namespace

TransformerLayer::TransformerLayer(LayerContext& context, int64_t layer,
                                   const RopeTable& rope)
    : TransformerLayer(context, reshard::LayerPrefix(layer),
                       context.model.has_experts(layer), rope) {}

TransformerLayer::TransformerLayer(LayerContext& context,
                                   const std::string& prefix, bool has_experts,
                                   const RopeTable& rope)
    : context_(context),
      attention_norm_(context, absl::StrCat(prefix, "attention_norm")),
      attention_(context, prefix, rope),
      mlp_norm_(context, absl::StrCat(prefix, "mlp_norm")),
      attention_dropout_(context, absl::StrCat(prefix, "attention")),
      mlp_dropout_(context, absl::StrCat(prefix, "mlp")) {
  const std::string mlp = absl::StrCat(prefix, "mlp.");
  if (has_experts) {
    mixture_.emplace(context, mlp);
  } else {
    mlp_.emplace(context, mlp, context.model.ffn_hidden_size);
  }
}

absl::Status TransformerLayer::ForwardMlp(const MicroBatch& batch, float* y,
                                          Cache& cache) {
  const float* x = cache.mlp_in.data();
  if (mixture_.has_value()) {
    return mixture_->Forward(x, batch, y, cache.mixture);
  }
  return mlp_->Forward(x, batch.num_samples * context_.seq_length, y,
                       cache.mlp);
}

absl::Status TransformerLayer::BackwardMlp(const Cache& cache,
                                           const MicroBatch& batch,
                                           const float* dy, float* dx) {
  const float* x = cache.mlp_in.data();
  return mixture_.has_value()
             ? mixture_->Backward(x, dy, cache.mixture, batch, dx)
             : mlp_->Backward(x, dy, cache.mlp, batch, dx);
}

absl::Status TransformerLayer::Forward(Buffer x, const MicroBatch& batch,
                                       Buffer& y, Cache& cache) {
  const int64_t rows = batch.num_samples * context_.seq_length;
  const int64_t size = x.size();
  const int64_t held_rows = context_.shards.rows(rows);
  cache.x = std::move(x);
  cache.attention_in = Buffer(size);
  attention_norm_.Forward(cache.x.data(), held_rows, cache.attention_in.data(),
                          cache.attention_stats);
  cache.h = Buffer(size);
  SS_RETURN_IF_ERROR(attention_.Forward(cache.attention_in.data(), batch,
                                        cache.h.data(), cache.attention));
  if (attention_dropout_.is_on()) {
    attention_dropout_.Apply(batch, cache.h.data(), cache.h.data());
  }
  Accumulate(context_, cache.x, cache.h);

  cache.mlp_in = Buffer(size);
  mlp_norm_.Forward(cache.h.data(), held_rows, cache.mlp_in.data(),
                    cache.mlp_stats);
  y = Buffer(size);
  SS_RETURN_IF_ERROR(ForwardMlp(batch, y.data(), cache));
  if (mlp_dropout_.is_on()) mlp_dropout_.Apply(batch, y.data(), y.data());
  Accumulate(context_, cache.h, y);
  return absl::OkStatus();
}

absl::Status TransformerLayer::Backward(const Cache& cache,
                                        const MicroBatch& batch, Buffer& dy) {
  Buffer branch(dy.size());
  SS_RETURN_IF_ERROR(BackwardMlp(cache, batch,
                                 BehindDropout(mlp_dropout_, batch, dy).data(),
                                 branch.data()));
  mlp_norm_.Backward(cache.h.data(), branch.data(), cache.mlp_stats, batch,
                     branch.data());
  Accumulate(context_, branch, dy);

  SS_RETURN_IF_ERROR(
      attention_.Backward(cache.attention_in.data(),
                          BehindDropout(attention_dropout_, batch, dy).data(),
                          cache.attention, batch, branch.data()));
  attention_norm_.Backward(cache.x.data(), branch.data(), cache.attention_stats,
                           batch, branch.data());
  Accumulate(context_, branch, dy);
  return absl::OkStatus();
}

}  // namespace shardshift::trainer
