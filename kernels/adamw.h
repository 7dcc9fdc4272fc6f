// AdamW (Loshchilov and Hutter 2019): Adam with decoupled weight decay, one
// elementwise function, so that any shard of a state gives the same bits.
//
//   g = grad grad_scale
//   m = fma(b1, m, (1-b1) g)
//   v = fma(b2, v, ((1-b2) g) g)
//   u = (m r1) / (sqrt(v r2) + eps)        r1 = 1/bias_correction1, r2 = 1/..2
//   p = fma(-lr, fma(weight_decay, p, u), p)
//
// Scalars are given in double; b1, 1-b1, r1, .. are each rounded to float once.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_ADAMW_H_
#define SHARDSHIFT_KERNELS_ADAMW_H_

#include <cstdint>

namespace shardshift::kernels {

// param, exp_avg, exp_avg_sq are updated in place; all arrays: [count].
// bias_correction = 1 - beta^t, t = number of steps including this one (see
// Pow in math.h).
struct AdamWArgs {
  float* param = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  const float* grad = nullptr;
  int64_t count = 0;
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double bias_correction1 = 1;
  double bias_correction2 = 1;
  double grad_scale = 1;
};

// The scalars of an update as the float kernel uses them.
struct AdamWScalars {
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float inverse_correction1, inverse_correction2;
  float minus_lr, eps, weight_decay, grad_scale;
};
AdamWScalars RoundAdamWScalars(const AdamWArgs& args);

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_ADAMW_H_
