// SPDX-License-Identifier: Apache-2.0
#include "kernels/activation.h"

#include "kernels/activation_constants.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/math.h"

namespace shardshift::kernels::SS_ISA {
namespace {

// c0 + c1 square.
F16 Quadratic(float c1, F16 square) {
  return Fma(Broadcast(c1), square, Broadcast(kGeluC0));
}

void GeluForward(const GeluForwardArgs& args) {
  ParallelForLanes(args.count, 20, [&](int64_t i, int64_t count) {
    const F16 x = Load(args.x + i, count);
    const F16 u = x * Quadratic(kGeluC1, x * x);
    Store(x * Sigmoid(u), args.y + i, count);
  });
}

void GeluBackward(const GeluBackwardArgs& args) {
  const F16 one = Broadcast(1.0F);
  ParallelForLanes(args.count, 20, [&](int64_t i, int64_t count) {
    const F16 x = Load(args.x + i, count);
    const F16 square = x * x;
    const F16 s = Sigmoid(x * Quadratic(kGeluC1, square));
    const F16 du = Quadratic(kGelu3C1, square);
    const F16 slope = Fma(x * (s * (one - s)), du, s);
    Store(Load(args.dy + i, count) * slope, args.dx + i, count);
  });
}

// Phi(-t) of activation.h and what it is made of.
struct NormalTail {
  F16 t;
  F16 density;  // e^(-t^2/2)
  F16 value;
};

NormalTail TailOf(F16 x) {
  const F16 t = Min(Broadcast(kTailMax), Select(NegativeLanes(x), -x, x));
  const F16 one = Broadcast(1.0F);
  const F16 u = one / Fma(Broadcast(kTailScale), t, one);
  F16 p = Broadcast(kTail[8]);
  for (int i = 7; i >= 0; --i) p = Fma(p, u, Broadcast(kTail[i]));
  const F16 square = t * t;
  const F16 rest = Fma(t, t, -square);
  const F16 e = Exp(Broadcast(-0.5F) * square);
  const F16 density = Fma(Broadcast(-0.5F) * e, rest, e);
  return {t, density, density * (u * p)};
}

void ExactGeluForward(const GeluForwardArgs& args) {
  ParallelForLanes(args.count, 20, [&](int64_t i, int64_t count) {
    const F16 x = Load(args.x + i, count);
    const NormalTail tail = TailOf(x);
    const F16 positive = Select(NegativeLanes(x), Broadcast(0.0F), x);
    Store(NegFma(tail.t, tail.value, positive), args.y + i, count);
  });
}

void ExactGeluBackward(const GeluBackwardArgs& args) {
  const F16 one = Broadcast(1.0F);
  ParallelForLanes(args.count, 20, [&](int64_t i, int64_t count) {
    const F16 x = Load(args.x + i, count);
    const Mask negative = NegativeLanes(x);
    const NormalTail tail = TailOf(x);
    const F16 clamped = Select(negative, -tail.t, tail.t);
    const F16 phi = Select(negative, tail.value, one - tail.value);
    const F16 slope =
        Fma(clamped * tail.density, Broadcast(kInverseRootTwoPi), phi);
    Store(Load(args.dy + i, count) * slope, args.dx + i, count);
  });
}

void SwigluForward(const SwigluForwardArgs& args) {
  ParallelForRows(args.rows, args.width, 20, [&](int64_t r) {
    const float* x = args.x + r * 2 * args.width;
    float* y = args.y + r * args.width;
    ForLanes(args.width, [&](int64_t c, int64_t count) {
      const F16 gate = Load(x + c, count);
      const F16 up = Load(x + args.width + c, count);
      Store((gate * Sigmoid(gate)) * up, y + c, count);
    });
  });
}

void SwigluBackward(const SwigluBackwardArgs& args) {
  const F16 one = Broadcast(1.0F);
  ParallelForRows(args.rows, args.width, 20, [&](int64_t r) {
    const float* dy_row = args.dy + r * args.width;
    const float* x = args.x + r * 2 * args.width;
    float* dx = args.dx + r * 2 * args.width;
    ForLanes(args.width, [&](int64_t c, int64_t count) {
      const F16 dy = Load(dy_row + c, count);
      const F16 gate = Load(x + c, count);
      const F16 up = Load(x + args.width + c, count);
      const F16 s = Sigmoid(gate);
      const F16 slope = s * Fma(gate, one - s, one);
      Store((dy * up) * slope, dx + c, count);
      Store(dy * (gate * s), dx + args.width + c, count);
    });
  });
}

}  // namespace

void InstallActivation(Kernels& table) {
  table.gelu_forward = GeluForward;
  table.gelu_backward = GeluBackward;
  table.exact_gelu_forward = ExactGeluForward;
  table.exact_gelu_backward = ExactGeluBackward;
  table.swiglu_forward = SwigluForward;
  table.swiglu_backward = SwigluBackward;
}

}  // namespace shardshift::kernels::SS_ISA
