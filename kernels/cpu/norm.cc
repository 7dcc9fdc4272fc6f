// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/lanes.h"

namespace shardshift::kernels::SS_ISA {
namespace {

float InverseRoot(float x) {
  return 1.0F / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
}

void RmsNormForward(const NormForwardArgs& args) {
  const auto hidden = static_cast<float>(args.hidden);
  ParallelForRows(args.rows, args.hidden, 10, [&](int64_t r) {
    const float* x = args.x + r * args.hidden;
    float* y = args.y + r * args.hidden;
    F16 squares = Broadcast(0.0F);
    ForLanes(args.hidden, [&](int64_t c, int64_t count) {
      const F16 value = Load(x + c, count);
      squares = Fma(value, value, squares);
    });
    args.rstd[r] = InverseRoot(FoldLanes(squares) / hidden + args.eps);
    const F16 rstd = Broadcast(args.rstd[r]);
    ForLanes(args.hidden, [&](int64_t c, int64_t count) {
      Store((Load(x + c, count) * rstd) * Load(args.weight + c, count), y + c,
            count);
    });
  });
}

void LayerNormForward(const NormForwardArgs& args) {
  const auto hidden = static_cast<float>(args.hidden);
  ParallelForRows(args.rows, args.hidden, 10, [&](int64_t r) {
    const float* x = args.x + r * args.hidden;
    float* y = args.y + r * args.hidden;
    F16 sum = Broadcast(0.0F);
    ForLanes(args.hidden,
             [&](int64_t c, int64_t count) { sum = sum + Load(x + c, count); });
    args.mean[r] = FoldLanes(sum) / hidden;
    const F16 mean = Broadcast(args.mean[r]);
    F16 squares = Broadcast(0.0F);
    ForLanes(args.hidden, [&](int64_t c, int64_t count) {
      const F16 d = KeepFirst(Load(x + c, count) - mean, count);
      squares = Fma(d, d, squares);
    });
    args.rstd[r] = InverseRoot(FoldLanes(squares) / hidden + args.eps);
    const F16 rstd = Broadcast(args.rstd[r]);
    ForLanes(args.hidden, [&](int64_t c, int64_t count) {
      const F16 xhat = (Load(x + c, count) - mean) * rstd;
      Store(Fma(xhat, Load(args.weight + c, count), Load(args.bias + c, count)),
            y + c, count);
    });
  });
}

void RmsNormBackward(const NormBackwardArgs& args) {
  const auto hidden = static_cast<float>(args.hidden);
  ParallelForRows(args.rows, args.hidden, 10, [&](int64_t r) {
    const float* dy = args.dy + r * args.hidden;
    const float* x = args.x + r * args.hidden;
    float* dx = args.dx + r * args.hidden;
    const F16 rstd = Broadcast(args.rstd[r]);
    F16 dots = Broadcast(0.0F);
    ForLanes(args.hidden, [&](int64_t c, int64_t count) {
      const F16 g = Load(dy + c, count) * Load(args.weight + c, count);
      dots = Fma(g, Load(x + c, count) * rstd, dots);
    });
    const F16 mean_dot = Broadcast(FoldLanes(dots) / hidden);
    ForLanes(args.hidden, [&](int64_t c, int64_t count) {
      const F16 g = Load(dy + c, count) * Load(args.weight + c, count);
      const F16 xhat = Load(x + c, count) * rstd;
      Store(rstd * NegFma(xhat, mean_dot, g), dx + c, count);
    });
  });
}

void LayerNormBackward(const NormBackwardArgs& args) {
  const auto hidden = static_cast<float>(args.hidden);
  ParallelForRows(args.rows, args.hidden, 10, [&](int64_t r) {
    const float* dy = args.dy + r * args.hidden;
    const float* x = args.x + r * args.hidden;
    float* dx = args.dx + r * args.hidden;
    const F16 mean = Broadcast(args.mean[r]);
    const F16 rstd = Broadcast(args.rstd[r]);
    F16 sums = Broadcast(0.0F);
    F16 dots = Broadcast(0.0F);
    // Beyond the end g is +0, which keeps xhat's lanes there out of the sum.
    ForLanes(args.hidden, [&](int64_t c, int64_t count) {
      const F16 g = Load(dy + c, count) * Load(args.weight + c, count);
      sums = sums + g;
      dots = Fma(g, (Load(x + c, count) - mean) * rstd, dots);
    });
    const F16 mean_g = Broadcast(FoldLanes(sums) / hidden);
    const F16 mean_dot = Broadcast(FoldLanes(dots) / hidden);
    ForLanes(args.hidden, [&](int64_t c, int64_t count) {
      const F16 g = Load(dy + c, count) * Load(args.weight + c, count);
      const F16 xhat = (Load(x + c, count) - mean) * rstd;
      Store(rstd * NegFma(xhat, mean_dot, g - mean_g), dx + c, count);
    });
  });
}

void RmsNormWeightGrad(const NormWeightGradArgs& args) {
  ParallelForLanes(args.hidden, 5 * args.rows, [&](int64_t c, int64_t count) {
    F16 grad_weight = Load(args.grad_weight + c, count);
    for (int64_t r = 0; r < args.rows; ++r) {
      const int64_t at = r * args.hidden + c;
      const F16 xhat = Load(args.x + at, count) * Broadcast(args.rstd[r]);
      grad_weight = Fma(Load(args.dy + at, count), xhat, grad_weight);
    }
    Store(grad_weight, args.grad_weight + c, count);
  });
}

void LayerNormWeightGrad(const NormWeightGradArgs& args) {
  ParallelForLanes(args.hidden, 5 * args.rows, [&](int64_t c, int64_t count) {
    F16 grad_weight = Load(args.grad_weight + c, count);
    F16 grad_bias = Load(args.grad_bias + c, count);
    for (int64_t r = 0; r < args.rows; ++r) {
      const int64_t at = r * args.hidden + c;
      const F16 dy = Load(args.dy + at, count);
      const F16 xhat = (Load(args.x + at, count) - Broadcast(args.mean[r])) *
                       Broadcast(args.rstd[r]);
      grad_weight = Fma(dy, xhat, grad_weight);
      grad_bias = grad_bias + dy;
    }
    Store(grad_weight, args.grad_weight + c, count);
    Store(grad_bias, args.grad_bias + c, count);
  });
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

}  // namespace shardshift::kernels::SS_ISA
