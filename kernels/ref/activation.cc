// SPDX-License-Identifier: Apache-2.0
#include "kernels/activation.h"

#include <cmath>

#include "kernels/activation_constants.h"
#include "kernels/ref/math.h"
#include "kernels/ref/ref.h"

namespace shardshift::kernels::ref {
namespace {

void GeluForward(const GeluForwardArgs& args) {
  for (int64_t i = 0; i < args.count; ++i) {
    const float x = args.x[i];
    const float u = x * std::fmaf(kGeluC1, x * x, kGeluC0);
    args.y[i] = x * Sigmoid(u);
  }
}

void GeluBackward(const GeluBackwardArgs& args) {
  for (int64_t i = 0; i < args.count; ++i) {
    const float x = args.x[i];
    const float square = x * x;
    const float s = Sigmoid(x * std::fmaf(kGeluC1, square, kGeluC0));
    const float du = std::fmaf(kGelu3C1, square, kGeluC0);
    args.dx[i] = args.dy[i] * std::fmaf(x * (s * (1.0F - s)), du, s);
  }
}

// Phi(-t) of activation.h and what it is made of.
struct NormalTail {
  float t;
  float density;  // e^(-t^2/2)
  float value;
};

NormalTail TailOf(float x) {
  const float size = std::signbit(x) ? -x : x;
  const float t = kTailMax < size ? kTailMax : size;
  const float u = 1.0F / std::fmaf(kTailScale, t, 1.0F);
  float p = kTail[8];
  for (int i = 7; i >= 0; --i) p = std::fmaf(p, u, kTail[i]);
  const float square = t * t;
  // What the square lost in rounding matters where the tail is small.
  const float rest = std::fmaf(t, t, -square);
  const float e = Exp(-0.5F * square);
  const float density = std::fmaf(-0.5F * e, rest, e);
  return {.t = t, .density = density, .value = density * (u * p)};
}

void ExactGeluForward(const GeluForwardArgs& args) {
  for (int64_t i = 0; i < args.count; ++i) {
    const float x = args.x[i];
    const NormalTail tail = TailOf(x);
    args.y[i] = std::fmaf(-tail.t, tail.value, std::signbit(x) ? 0.0F : x);
  }
}

void ExactGeluBackward(const GeluBackwardArgs& args) {
  for (int64_t i = 0; i < args.count; ++i) {
    const bool negative = std::signbit(args.x[i]);
    const NormalTail tail = TailOf(args.x[i]);
    const float x = negative ? -tail.t : tail.t;
    const float phi = negative ? tail.value : 1.0F - tail.value;
    args.dx[i] =
        args.dy[i] * std::fmaf(x * tail.density, kInverseRootTwoPi, phi);
  }
}

void SwigluForward(const SwigluForwardArgs& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* gate = args.x + r * 2 * args.width;
    const float* up = gate + args.width;
    float* y = args.y + r * args.width;
    for (int64_t c = 0; c < args.width; ++c) {
      y[c] = (gate[c] * Sigmoid(gate[c])) * up[c];
    }
  }
}

void SwigluBackward(const SwigluBackwardArgs& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* dy = args.dy + r * args.width;
    const float* x = args.x + r * 2 * args.width;
    float* dx = args.dx + r * 2 * args.width;
    for (int64_t c = 0; c < args.width; ++c) {
      const float gate = x[c];
      const float up = x[args.width + c];
      const float s = Sigmoid(gate);
      const float slope = s * std::fmaf(gate, 1.0F - s, 1.0F);
      dx[c] = (dy[c] * up) * slope;
      dx[args.width + c] = dy[c] * (gate * s);
    }
  }
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

}  // namespace shardshift::kernels::ref
