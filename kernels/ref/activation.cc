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
  table.swiglu_forward = SwigluForward;
  table.swiglu_backward = SwigluBackward;
}

}  // namespace shardshift::kernels::ref
