// LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019).
//
//   RMSNorm:   xhat = x rstd            rstd = 1 / sqrt(sum(x^2) / H + eps)
//              y = xhat w
//   LayerNorm: xhat = (x - mean) rstd   rstd = 1 / sqrt(sum((x-mean)^2) / H
//              y = fma(xhat, w, b)                       + eps)
//   dx, g = dy w, means over H:
//     RMSNorm:   rstd fma(-xhat, mean(g xhat), g)
//     LayerNorm: rstd fma(-xhat, mean(g xhat), g - mean(g))
//
// Sums over H are lane sums (lane_sum.h): products enter by fma. Rows are
// independent of each other, except in the weight gradient.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_NORM_H_
#define SHARDSHIFT_KERNELS_NORM_H_

#include <cstdint>

namespace shardshift::kernels {

// x, y: [rows,hidden]; weight, bias: [hidden]; mean, rstd: [rows], kept for the
// backward pass. bias and mean are LayerNorm's only: RMSNorm ignores them.
// y may be x. REQUIRES: hidden > 0.
struct NormForwardArgs {
  const float* x = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;
  int64_t rows = 0;
  int64_t hidden = 0;
  float eps = 0;
  float* y = nullptr;
  float* mean = nullptr;
  float* rstd = nullptr;
};

// dy, x, dx: [rows,hidden]; weight: [hidden]; mean (LayerNorm only), rstd:
// [rows]. dx is overwritten and may be dy. REQUIRES: hidden > 0.
struct NormBackwardArgs {
  const float* dy = nullptr;
  const float* x = nullptr;
  const float* weight = nullptr;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  int64_t rows = 0;
  int64_t hidden = 0;
  float* dx = nullptr;
};

// grad_weight[c] = fma(dy[r,c], xhat[r,c], grad_weight[c]) and, for LayerNorm,
// grad_bias[c] = grad_bias[c] + dy[r,c], for r = 0, 1, ..: chains that go on
// from the values in the accumulators ([hidden] each). Other shapes as above.
struct NormWeightGradArgs {
  const float* dy = nullptr;
  const float* x = nullptr;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  int64_t rows = 0;
  int64_t hidden = 0;
  float* grad_weight = nullptr;
  float* grad_bias = nullptr;
};

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_NORM_H_
