// GeLU (tanh form and exact) and SwiGLU. Elementwise.
//
//   s(z)    = 1 / (1 + exp(-z))
//   gelu(x) = x s(u),  u = x (c0 + c1 x^2),  c0 = 2 sqrt(2/pi), c1 = 0.044715
//   c0
//             (the same function as x/2 (1 + tanh(u/2)))
//   gelu'   = s + x s (1 - s) (c0 + 3 c1 x^2)
//   swiglu(gate, up) = gate s(gate) up
//
//   exact:  gelu(x) = x Phi(x),  gelu' = Phi(x) + x phi(x)
//   Phi(x)  = (1 + erf(x / sqrt(2))) / 2, phi its derivative; as computed:
//   Phi(-t) = e^(-t^2/2) R(t) for t >= 0, R a polynomial in 1 / (1 + p t);
//   gelu(x) = max(x, 0) - t Phi(-t),  t = min(|x|, 16)
//             within 6 ulp; gelu' within 2.5e-7
//
// exp is ref/math.h's polynomial on every instruction set. Beyond |x| of about
// 1e18 gelu' of the tanh form is NaN.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_ACTIVATION_H_
#define SHARDSHIFT_KERNELS_ACTIVATION_H_

#include <cstdint>

namespace shardshift::kernels {

// y[i] = gelu(x[i]), in either form. y may be x.
struct GeluForwardArgs {
  const float* x = nullptr;
  int64_t count = 0;
  float* y = nullptr;
};

// dx[i] = dy[i] gelu'(x[i]). dx may be dy or x.
struct GeluBackwardArgs {
  const float* dy = nullptr;
  const float* x = nullptr;
  int64_t count = 0;
  float* dx = nullptr;
};

// x: [rows, 2 width], its columns [gate | up]; y: [rows,width].
struct SwigluForwardArgs {
  const float* x = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
  float* y = nullptr;
};

// dy: [rows,width]; x, dx: [rows, 2 width], columns [gate | up]. dx may be x.
struct SwigluBackwardArgs {
  const float* dy = nullptr;
  const float* x = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
  float* dx = nullptr;
};

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_ACTIVATION_H_
