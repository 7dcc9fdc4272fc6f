// SPDX-License-Identifier: Apache-2.0
#include "kernels/adamw.h"

#include <cmath>

#include "kernels/ref/ref.h"

namespace shardshift::kernels::ref {
namespace {

void AdamW(const AdamWArgs& args) {
  const AdamWScalars s = RoundAdamWScalars(args);
  for (int64_t i = 0; i < args.count; ++i) {
    const float g = args.grad[i] * s.grad_scale;
    const float m = std::fmaf(s.beta1, args.exp_avg[i], s.one_minus_beta1 * g);
    const float v =
        std::fmaf(s.beta2, args.exp_avg_sq[i], (s.one_minus_beta2 * g) * g);
    const float update = (m * s.inverse_correction1) /
                         (std::sqrt(v * s.inverse_correction2) + s.eps);
    const float p = args.param[i];
    args.exp_avg[i] = m;
    args.exp_avg_sq[i] = v;
    args.param[i] =
        std::fmaf(s.minus_lr, std::fmaf(s.weight_decay, p, update), p);
  }
}

}  // namespace

void InstallAdamW(Kernels& table) { table.adamw = AdamW; }

}  // namespace shardshift::kernels::ref
