// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm.h"

#include <cmath>

#include "kernels/lane_sum.h"
#include "kernels/ref/ref.h"

namespace shardshift::kernels::ref {
namespace {

void RmsNormForward(const NormForwardArgs& args) {
  const auto hidden = static_cast<float>(args.hidden);
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* x = args.x + r * args.hidden;
    float* y = args.y + r * args.hidden;
    LaneSum squares;
    for (int64_t c = 0; c < args.hidden; ++c) squares.AddProduct(c, x[c], x[c]);
    const float rstd = 1.0F / std::sqrt(squares.Total() / hidden + args.eps);
    for (int64_t c = 0; c < args.hidden; ++c) {
      y[c] = (x[c] * rstd) * args.weight[c];
    }
    args.rstd[r] = rstd;
  }
}

void LayerNormForward(const NormForwardArgs& args) {
  const auto hidden = static_cast<float>(args.hidden);
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* x = args.x + r * args.hidden;
    float* y = args.y + r * args.hidden;
    LaneSum sum;
    for (int64_t c = 0; c < args.hidden; ++c) sum.Add(c, x[c]);
    const float mean = sum.Total() / hidden;
    LaneSum squares;
    for (int64_t c = 0; c < args.hidden; ++c) {
      squares.AddProduct(c, x[c] - mean, x[c] - mean);
    }
    const float rstd = 1.0F / std::sqrt(squares.Total() / hidden + args.eps);
    for (int64_t c = 0; c < args.hidden; ++c) {
      y[c] = std::fmaf((x[c] - mean) * rstd, args.weight[c], args.bias[c]);
    }
    args.mean[r] = mean;
    args.rstd[r] = rstd;
  }
}

void RmsNormBackward(const NormBackwardArgs& args) {
  const auto hidden = static_cast<float>(args.hidden);
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* dy = args.dy + r * args.hidden;
    const float* x = args.x + r * args.hidden;
    float* dx = args.dx + r * args.hidden;
    const float rstd = args.rstd[r];
    LaneSum dots;
    for (int64_t c = 0; c < args.hidden; ++c) {
      dots.AddProduct(c, dy[c] * args.weight[c], x[c] * rstd);
    }
    const float mean_dot = dots.Total() / hidden;
    for (int64_t c = 0; c < args.hidden; ++c) {
      const float g = dy[c] * args.weight[c];
      dx[c] = rstd * std::fmaf(-(x[c] * rstd), mean_dot, g);
    }
  }
}

void LayerNormBackward(const NormBackwardArgs& args) {
  const auto hidden = static_cast<float>(args.hidden);
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* dy = args.dy + r * args.hidden;
    const float* x = args.x + r * args.hidden;
    float* dx = args.dx + r * args.hidden;
    const float mean = args.mean[r];
    const float rstd = args.rstd[r];
    LaneSum sums;
    LaneSum dots;
    for (int64_t c = 0; c < args.hidden; ++c) {
      const float g = dy[c] * args.weight[c];
      sums.Add(c, g);
      dots.AddProduct(c, g, (x[c] - mean) * rstd);
    }
    const float mean_g = sums.Total() / hidden;
    const float mean_dot = dots.Total() / hidden;
    for (int64_t c = 0; c < args.hidden; ++c) {
      const float g = dy[c] * args.weight[c];
      const float xhat = (x[c] - mean) * rstd;
      dx[c] = rstd * std::fmaf(-xhat, mean_dot, g - mean_g);
    }
  }
}

void RmsNormWeightGrad(const NormWeightGradArgs& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* dy = args.dy + r * args.hidden;
    const float* x = args.x + r * args.hidden;
    for (int64_t c = 0; c < args.hidden; ++c) {
      args.grad_weight[c] =
          std::fmaf(dy[c], x[c] * args.rstd[r], args.grad_weight[c]);
    }
  }
}

void LayerNormWeightGrad(const NormWeightGradArgs& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* dy = args.dy + r * args.hidden;
    const float* x = args.x + r * args.hidden;
    for (int64_t c = 0; c < args.hidden; ++c) {
      const float xhat = (x[c] - args.mean[r]) * args.rstd[r];
      args.grad_weight[c] = std::fmaf(dy[c], xhat, args.grad_weight[c]);
      args.grad_bias[c] = args.grad_bias[c] + dy[c];
    }
  }
}

}  // namespace

void InstallNorm(Kernels& table) {
  table.rms_norm_forward = RmsNormForward;
  table.rms_norm_backward = RmsNormBackward;
  table.rms_norm_weight_grad = RmsNormWeightGrad;
  table.layer_norm_forward = LayerNormForward;
  table.layer_norm_backward = LayerNormBackward;
  table.layer_norm_weight_grad = LayerNormWeightGrad;
}

}  // namespace shardshift::kernels::ref
