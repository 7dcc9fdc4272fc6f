// ref/math.h on sixteen lanes, operation by operation.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_CPU_MATH_H_
#define SHARDSHIFT_KERNELS_CPU_MATH_H_

#include "kernels/cpu/lanes.h"
#include "kernels/exp_constants.h"

namespace shardshift::kernels::SS_ISA {

inline F16 PowerOfTwo(I16 n) {
  return FromBits(ShiftLeft<23>(n + BroadcastInt(127)));
}

inline F16 Exp(F16 x) {
  namespace k = exp_constants;
  x = Min(Broadcast(k::kMax), x);
  x = Max(Broadcast(k::kMin), x);
  const F16 shift = Broadcast(k::kRoundShift);
  const F16 shifted = Fma(x, Broadcast(k::kLog2E), shift);
  const F16 n = shifted - shift;
  F16 r = Fma(n, Broadcast(-k::kLn2High), x);
  r = Fma(n, Broadcast(-k::kLn2Low), r);
  F16 p = Fma(Broadcast(k::kC7), r, Broadcast(k::kC6));
  p = Fma(p, r, Broadcast(k::kC5));
  p = Fma(p, r, Broadcast(k::kC4));
  p = Fma(p, r, Broadcast(k::kC3));
  p = Fma(p, r, Broadcast(k::kC2));
  p = Fma(p, r, Broadcast(1.0F));
  p = Fma(p, r, Broadcast(1.0F));
  const I16 whole = BitsOf(shifted) - BroadcastInt(k::kRoundShiftBits);
  const I16 half = ShiftRight<1>(whole);
  return p * PowerOfTwo(half) * PowerOfTwo(whole - half);
}

inline F16 Sigmoid(F16 z) {
  const F16 one = Broadcast(1.0F);
  return one / (one + Exp(-z));
}

}  // namespace shardshift::kernels::SS_ISA

#endif  // SHARDSHIFT_KERNELS_CPU_MATH_H_
