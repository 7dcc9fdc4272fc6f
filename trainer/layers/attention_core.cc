// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/attention_core.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace shardshift::trainer {
namespace {

using kernels::StridedMatrix;

StridedMatrix Strided(const float* data, int64_t row_stride) {
  return {.data = data, .row_stride = row_stride, .col_stride = 1};
}

StridedMatrix Transpose(const StridedMatrix& m) {
  return {
      .data = m.data, .row_stride = m.col_stride, .col_stride = m.row_stride};
}

}  // namespace

AttentionCore::AttentionCore(LayerContext& context, const std::string& layer,
                             const RopeTable& rope)
    : context_(context),
      rope_(rope),
      head_dim_(context.model.kv_channels),
      groups_(std::max<int64_t>(
          1, context.model.num_query_groups / context.mesh.layout().tensor)),
      heads_(context.model.num_attention_heads / context.mesh.layout().tensor /
             groups_),
      dropout_(context, absl::StrCat(layer, "attention"),
               context.mesh.at().tensor * groups_ * heads_, groups_ * heads_) {
  if (context.model.qk_layernorm) {
    norms_.emplace(context, layer, groups_ * heads_);
  }
}

float AttentionCore::scale() const {
  return 1.0F / std::sqrt(static_cast<float>(head_dim_));
}

AttentionCore::Cache AttentionCore::MakeCache(int64_t num_samples) const {
  const int64_t positions = context_.seq_length;
  const int64_t rows = num_samples * positions;
  Cache cache;
  cache.qkv = Buffer(rows * qkv_width());
  cache.probs = Buffer(recomputes_probs() ? 0 : ProbsAt({num_samples}));
  cache.context = Buffer(rows * context_width());
  if (norms_.has_value()) {
    cache.norms = norms_->MakeCache(num_samples * groups_ * (heads_ + 1));
  }
  return cache;
}

void AttentionCore::Rotate(float* x, int64_t row_stride, int64_t num_heads,
                           bool inverse) {
  if (rope_.cos.size() == 0) return;
  context_.kernels.rope({.x = x,
                         .rows = context_.seq_length,
                         .row_stride = row_stride,
                         .num_heads = num_heads,
                         .head_stride = head_dim_,
                         .head_dim = head_dim_,
                         .first_position = 0,
                         .cos = rope_.cos.data(),
                         .sin = rope_.sin.data(),
                         .inverse = inverse,
                         .interleaved = context_.model.rotary_interleaved});
}

// The key head lies right behind the query heads.
void AttentionCore::PrepareGroup(int64_t sample, int64_t group, Cache& cache) {
  float* queries = cache.qkv.data() +
                   sample * context_.seq_length * qkv_width() +
                   group * group_width();
  if (norms_.has_value()) {
    for (int64_t head = 0; head <= heads_; ++head) {
      norms_->Forward(
          head < heads_ ? HeadNorms::Kind::kQuery : HeadNorms::Kind::kKey,
          NormIndex({sample, group, head}), queries + head * head_dim_,
          qkv_width(), cache.norms);
    }
  }
  Rotate(queries, qkv_width(), heads_ + 1, /*inverse=*/false);
}

void AttentionCore::Probabilities(const Cache& cache, const Head& head,
                                  float* probs) {
  const int64_t positions = context_.seq_length;
  const int64_t width = qkv_width();
  const float* queries = cache.qkv.data() + head.sample * positions * width +
                         head.group * group_width();
  const float* keys = queries + heads_ * head_dim_;
  context_.kernels.gemm({.m = positions,
                         .n = positions,
                         .k = head_dim_,
                         .a = Strided(queries + head.head * head_dim_, width),
                         .b = Transpose(Strided(keys, width)),
                         .c = probs,
                         .ldc = positions});
  context_.kernels.causal_softmax_forward(
      {.scores = probs,
       .size = positions,
       .scale = scale(),
       .window = context_.model.sliding_window});
  context_.Round(probs, positions * positions);
}

void AttentionCore::ForwardHead(const MicroBatch& batch, const Head& head,
                                Cache& cache) {
  const int64_t positions = context_.seq_length;
  const int64_t width = qkv_width();
  const float* values = cache.qkv.data() + head.sample * positions * width +
                        head.group * group_width() + (heads_ + 1) * head_dim_;
  Buffer scratch(recomputes_probs() ? positions * positions : 0);
  float* probs =
      recomputes_probs() ? scratch.data() : cache.probs.data() + ProbsAt(head);
  Probabilities(cache, head, probs);
  Buffer dropped(dropout_.is_on() ? positions * positions : 0);
  if (dropout_.is_on()) {
    dropout_.Apply(batch.number_in_run + head.sample, Index(head), probs,
                   dropped.data());
    probs = dropped.data();
  }
  context_.kernels.gemm({.m = positions,
                         .n = head_dim_,
                         .k = positions,
                         .a = Strided(probs, positions),
                         .b = Strided(values, width),
                         .c = cache.context.data() +
                              head.sample * positions * context_width() +
                              Index(head) * head_dim_,
                         .ldc = context_width()});
}

void AttentionCore::Forward(const MicroBatch& batch, Cache& cache) {
  for (int64_t sample = 0; sample < batch.num_samples; ++sample) {
    for (int64_t group = 0; group < groups_; ++group) {
      PrepareGroup(sample, group, cache);
    }
  }
  context_.Round(cache.qkv.data(), cache.qkv.size());
  for (int64_t sample = 0; sample < batch.num_samples; ++sample) {
    for (int64_t group = 0; group < groups_; ++group) {
      for (int64_t head = 0; head < heads_; ++head) {
        ForwardHead(batch, {sample, group, head}, cache);
      }
    }
  }
  context_.Round(cache.context.data(), cache.context.size());
}

// Head by head, before the heads of a group are summed: where ranks share a
// group, the sum is cut off head borders.
void AttentionCore::BackwardQueryAndKey(const Cache& cache, const Head& head,
                                        float* d_query, float* d_key) {
  Rotate(d_query, qkv_width(), 1, /*inverse=*/true);
  Rotate(d_key, head_dim_, 1, /*inverse=*/true);
  if (!norms_.has_value()) return;
  const int64_t local_head = head.group * heads_ + head.head;
  norms_->Backward(HeadNorms::Kind::kQuery, NormIndex(head), local_head,
                   cache.norms, d_query, qkv_width());
  norms_->Backward(HeadNorms::Kind::kKey,
                   NormIndex({head.sample, head.group, heads_}), local_head,
                   cache.norms, d_key, head_dim_);
}

void AttentionCore::BackwardHead(const Cache& cache, const float* d_context,
                                 const MicroBatch& batch, const Head& head,
                                 const HeadGradient& gradient) {
  const int64_t positions = context_.seq_length;
  const int64_t width = qkv_width();
  const int64_t group_at =
      head.sample * positions * width + head.group * group_width();
  const float* query = cache.qkv.data() + group_at + head.head * head_dim_;
  const float* key = cache.qkv.data() + group_at + heads_ * head_dim_;
  const float* value = key + head_dim_;
  Buffer recomputed(recomputes_probs() ? positions * positions : 0);
  if (recomputes_probs()) Probabilities(cache, head, recomputed.data());
  const float* probs = recomputes_probs() ? recomputed.data()
                                          : cache.probs.data() + ProbsAt(head);
  const StridedMatrix d_out =
      Strided(d_context + head.sample * positions * context_width() +
                  Index(head) * head_dim_,
              context_width());
  float* d_query = gradient.d_qkv + group_at + head.head * head_dim_;

  Buffer d_scores(positions * positions);
  context_.kernels.gemm({.m = positions,
                         .n = positions,
                         .k = head_dim_,
                         .a = d_out,
                         .b = Transpose(Strided(value, width)),
                         .c = d_scores.data(),
                         .ldc = positions});
  const float* weights = probs;
  Buffer dropped(dropout_.is_on() ? positions * positions : 0);
  if (dropout_.is_on()) {
    const int64_t number = batch.number_in_run + head.sample;
    dropout_.Apply(number, Index(head), probs, dropped.data());
    dropout_.Apply(number, Index(head), d_scores.data(), d_scores.data());
    weights = dropped.data();
  }
  context_.kernels.gemm({.m = positions,
                         .n = head_dim_,
                         .k = positions,
                         .a = Transpose(Strided(weights, positions)),
                         .b = d_out,
                         .c = gradient.d_value,
                         .ldc = head_dim_});
  context_.kernels.causal_softmax_backward(
      {.p = probs,
       .dp = d_scores.data(),
       .size = positions,
       .scale = scale(),
       .window = context_.model.sliding_window});
  context_.Round(d_scores.data(), d_scores.size());
  context_.kernels.gemm({.m = positions,
                         .n = head_dim_,
                         .k = positions,
                         .a = Strided(d_scores.data(), positions),
                         .b = Strided(key, width),
                         .c = d_query,
                         .ldc = width});
  context_.kernels.gemm({.m = positions,
                         .n = head_dim_,
                         .k = positions,
                         .a = Transpose(Strided(d_scores.data(), positions)),
                         .b = Strided(query, width),
                         .c = gradient.d_key,
                         .ldc = head_dim_});
  BackwardQueryAndKey(cache, head, d_query, gradient.d_key);
}

void AttentionCore::OpenSample(int64_t sample) {
  if (norms_.has_value()) norms_->OpenSample(sample);
}

absl::Status AttentionCore::CloseSample(int64_t sample) {
  return norms_.has_value() ? norms_->CloseSample(sample) : absl::OkStatus();
}

}  // namespace shardshift::trainer
