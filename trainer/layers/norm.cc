// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/norm.h"

#include "absl/strings/str_cat.h"

namespace shardshift::trainer {

Norm::Norm(LayerContext& context, const std::string& name)
    : context_(context),
      weight_(context.parameters.Find(absl::StrCat(name, ".weight")).value()),
      rms_(context.model.normalization == reshard::Normalization::kRmsNorm) {
  if (!rms_) {
    bias_ = context.parameters.Find(absl::StrCat(name, ".bias")).value();
  }
}

void Norm::Forward(const float* x, int64_t rows, float* y, Stats& stats) const {
  stats.rstd = Buffer(rows);
  if (!rms_) stats.mean = Buffer(rows);
  const kernels::NormForwardArgs args{
      .x = x,
      .weight = context_.parameters.data(weight_),
      .bias = rms_ ? nullptr : context_.parameters.data(bias_),
      .rows = rows,
      .hidden = context_.model.hidden_size,
      .eps = static_cast<float>(context_.model.norm_epsilon),
      .y = y,
      .mean = stats.mean.data(),
      .rstd = stats.rstd.data()};
  if (rms_) {
    context_.kernels.rms_norm_forward(args);
  } else {
    context_.kernels.layer_norm_forward(args);
  }
  context_.Round(y, rows * args.hidden);
}

void Norm::AddWeightGradient(const float* x, const float* dy,
                             const Stats& stats, const MicroBatch& batch) {
  const int64_t hidden = context_.model.hidden_size;
  const int64_t blocks = context_.shards.blocks();
  const int64_t positions = context_.shards.positions() / blocks;
  for (int64_t i = 0; i < batch.num_samples; ++i) {
    const int64_t sample = batch.first_sample + i;
    float* weight_sums = context_.gradients.OpenBlocks(weight_, sample);
    float* bias_sums =
        rms_ ? nullptr : context_.gradients.OpenBlocks(bias_, sample);
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t row = (i * blocks + block) * positions;
      const kernels::NormWeightGradArgs args{
          .dy = dy + row * hidden,
          .x = x + row * hidden,
          .mean = rms_ ? nullptr : stats.mean.data() + row,
          .rstd = stats.rstd.data() + row,
          .rows = positions,
          .hidden = hidden,
          .grad_weight = weight_sums + block * hidden,
          .grad_bias = rms_ ? nullptr : bias_sums + block * hidden};
      if (rms_) {
        context_.kernels.rms_norm_weight_grad(args);
      } else {
        context_.kernels.layer_norm_weight_grad(args);
      }
    }
    context_.gradients.Close(weight_, sample);
    if (!rms_) context_.gradients.Close(bias_, sample);
  }
}

void Norm::Backward(const float* x, const float* dy, const Stats& stats,
                    const MicroBatch& batch, float* dx) {
  AddWeightGradient(x, dy, stats, batch);
  const kernels::NormBackwardArgs args{
      .dy = dy,
      .x = x,
      .weight = context_.parameters.data(weight_),
      .mean = stats.mean.data(),
      .rstd = stats.rstd.data(),
      .rows = batch.num_samples * context_.shards.positions(),
      .hidden = context_.model.hidden_size,
      .dx = dx};
  if (rms_) {
    context_.kernels.rms_norm_backward(args);
  } else {
    context_.kernels.layer_norm_backward(args);
  }
  context_.Round(dx, args.rows * args.hidden);
}

}  // namespace shardshift::trainer
