// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/head_norms.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "trainer/layers/copy_rows.h"

namespace shardshift::trainer {
namespace {

constexpr char kQueryNorm[] = "attention.q_norm";
constexpr char kKeyNorm[] = "attention.k_norm";

}  // namespace

bool HeadNorms::Owns(absl::string_view parameter) {
  return absl::StrContains(parameter, kQueryNorm) ||
         absl::StrContains(parameter, kKeyNorm);
}

HeadNorms::HeadNorms(LayerContext& context, const std::string& layer,
                     int64_t local_heads)
    : context_(context),
      head_dim_(context.model.kv_channels),
      rms_(context.model.normalization == reshard::Normalization::kRmsNorm),
      sums_(local_heads * sums_per_head()),
      nodes_(
          kernels::CompleteNodes(context.model.num_attention_heads,
                                 context.mesh.at().tensor * local_heads,
                                 (context.mesh.at().tensor + 1) * local_heads)),
      closed_(nodes_.size()),
      head_(context.seq_length * head_dim_) {
  const auto find = [&](const char* norm) {
    const auto entry = [&](const char* suffix) {
      return context.parameters.Find(absl::StrCat(layer, norm, suffix));
    };
    return Weights{.weight = entry(".weight").value(),
                   .bias = entry(".bias").value_or(-1)};
  };
  query_ = find(kQueryNorm);
  key_ = find(kKeyNorm);
}

HeadNorms::Cache HeadNorms::MakeCache(int64_t heads) const {
  const int64_t rows = heads * context_.seq_length;
  return {.x = Buffer(rows * head_dim_),
          .mean = Buffer(rms_ ? 0 : rows),
          .rstd = Buffer(rows)};
}

void HeadNorms::Forward(Kind kind, int64_t index, float* head,
                        int64_t row_stride, Cache& cache) const {
  const int64_t rows = context_.seq_length;
  const Weights& weights = Of(kind);
  float* x = cache.x.data() + index * rows * head_dim_;
  Buffer y(rows * head_dim_);
  CopyRows(head, row_stride, rows, head_dim_, x, head_dim_);
  const kernels::NormForwardArgs args{
      .x = x,
      .weight = context_.parameters.data(weights.weight),
      .bias = rms_ ? nullptr : context_.parameters.data(weights.bias),
      .rows = rows,
      .hidden = head_dim_,
      .eps = static_cast<float>(context_.model.norm_epsilon),
      .y = y.data(),
      .mean = rms_ ? nullptr : cache.mean.data() + index * rows,
      .rstd = cache.rstd.data() + index * rows};
  if (rms_) {
    context_.kernels.rms_norm_forward(args);
  } else {
    context_.kernels.layer_norm_forward(args);
  }
  context_.Round(y.data(), y.size());
  CopyRows(y.data(), head_dim_, rows, head_dim_, head, row_stride);
}

void HeadNorms::OpenSample(int64_t sample) {
  if (!context_.gradients.tree().At(sample).opens_group) return;
  std::fill(sums_.begin(), sums_.end(), 0.0F);
}

void HeadNorms::Backward(Kind kind, int64_t index, int64_t local_head,
                         const Cache& cache, float* d_head,
                         int64_t row_stride) {
  const int64_t rows = context_.seq_length;
  const float* x = cache.x.data() + index * rows * head_dim_;
  const float* mean = rms_ ? nullptr : cache.mean.data() + index * rows;
  const float* rstd = cache.rstd.data() + index * rows;
  float* dy = head_.data();
  CopyRows(d_head, row_stride, rows, head_dim_, dy, head_dim_);
  float* sums = Sums(kind, local_head);
  const kernels::NormWeightGradArgs weight_grad{.dy = dy,
                                                .x = x,
                                                .mean = mean,
                                                .rstd = rstd,
                                                .rows = rows,
                                                .hidden = head_dim_,
                                                .grad_weight = sums,
                                                .grad_bias = sums + head_dim_};
  const kernels::NormBackwardArgs backward{
      .dy = dy,
      .x = x,
      .weight = context_.parameters.data(Of(kind).weight),
      .mean = mean,
      .rstd = rstd,
      .rows = rows,
      .hidden = head_dim_,
      .dx = dy};
  if (rms_) {
    context_.kernels.rms_norm_weight_grad(weight_grad);
    context_.kernels.rms_norm_backward(backward);
  } else {
    context_.kernels.layer_norm_weight_grad(weight_grad);
    context_.kernels.layer_norm_backward(backward);
  }
  CopyRows(dy, head_dim_, rows, head_dim_, d_head, row_stride);
}

void HeadNorms::Store(int64_t entry, int64_t sample, const float* sum) {
  std::copy_n(sum, head_dim_, context_.gradients.GroupSum(entry, sample));
  context_.gradients.Close(entry, sample);
}

absl::Status HeadNorms::CloseSample(int64_t sample) {
  const SampleTree& samples = context_.gradients.tree();
  if (!samples.At(sample).closes_group) return absl::OkStatus();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    std::vector<kernels::NodeValue> heads;
    for (int64_t head = nodes_[i].begin; head < nodes_[i].end; ++head) {
      heads.push_back(
          {{head, head + 1}, Sums(Kind::kQuery, head - nodes_.front().begin)});
    }
    std::vector<float>& closed = closed_[i];
    closed.resize(closed.size() + sums_per_head());
    kernels::CombineNodes(nodes_[i], heads, sums_per_head(),
                          &closed[closed.size() - sums_per_head()]);
  }
  closing_samples_.push_back(sample);
  return sample + 1 == samples.num_samples() ? SumOverRanks()
                                             : absl::OkStatus();
}

absl::Status HeadNorms::SumOverRanks() {
  std::vector<TreeBuffer> inputs;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    inputs.push_back({.node = nodes_[i], .data = closed_[i].data()});
  }
  std::vector<float> total(closed_.front().size());
  SS_RETURN_IF_ERROR(context_.mesh.tensor().TreeAllReduce(
      {.leaves = context_.model.num_attention_heads,
       .nodes = inputs,
       .count = std::ssize(total)},
      total.data()));
  const float* sum = total.data();
  for (const int64_t sample : closing_samples_) {
    for (const Weights& weights : {query_, key_}) {
      Store(weights.weight, sample, sum);
      if (!rms_) Store(weights.bias, sample, sum + head_dim_);
      sum += 2 * head_dim_;
    }
  }
  for (std::vector<float>& closed : closed_) closed.clear();
  closing_samples_.clear();
  return absl::OkStatus();
}

}  // namespace shardshift::trainer
