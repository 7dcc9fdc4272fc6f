// SPDX-License-Identifier: Apache-2.0
#include "kernels/softmax.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/math.h"

namespace shardshift::kernels::SS_ISA {
namespace {

void ClearFrom(float* begin, float* end) {
  for (; begin < end; ++begin) *begin = 0.0F;
}

void ForwardRow(float* row, int64_t keys, float scale_value) {
  const F16 scale = Broadcast(scale_value);
  const F16 lowest = Broadcast(-__builtin_inff());
  F16 max = lowest;
  ForLanes(keys, [&](int64_t j, int64_t count) {
    const F16 t = Load(row + j, count) * scale;
    max = Max(Select(FirstLanes(count), t, lowest), max);
  });
  const F16 row_max = Broadcast(MaxLane(max));
  F16 sum = Broadcast(0.0F);
  ForLanes(keys, [&](int64_t j, int64_t count) {
    const F16 e = Exp(Load(row + j, count) * scale - row_max);
    sum = sum + KeepFirst(e, count);
    Store(e, row + j, count);
  });
  const F16 inverse = Broadcast(1.0F / FoldLanes(sum));
  ForLanes(keys, [&](int64_t j, int64_t count) {
    Store(Load(row + j, count) * inverse, row + j, count);
  });
}

void CausalSoftmaxForward(const CausalSoftmaxForwardArgs& args) {
  for (int64_t i = 0; i < args.size; ++i) {
    float* row = args.scores + i * args.size;
    ForwardRow(row, i + 1, args.scale);
    ClearFrom(row + i + 1, row + args.size);
  }
}

void CausalSoftmaxBackward(const CausalSoftmaxBackwardArgs& args) {
  const F16 scale = Broadcast(args.scale);
  for (int64_t i = 0; i < args.size; ++i) {
    const float* p = args.p + i * args.size;
    float* row = args.dp + i * args.size;
    F16 dots = Broadcast(0.0F);
    ForLanes(i + 1, [&](int64_t j, int64_t count) {
      dots = Fma(Load(row + j, count), Load(p + j, count), dots);
    });
    const F16 dot = Broadcast(FoldLanes(dots));
    ForLanes(i + 1, [&](int64_t j, int64_t count) {
      const F16 d = Load(row + j, count) - dot;
      Store(scale * (Load(p + j, count) * d), row + j, count);
    });
    ClearFrom(row + i + 1, row + args.size);
  }
}

}  // namespace

void InstallSoftmax(Kernels& table) {
  table.causal_softmax_forward = CausalSoftmaxForward;
  table.causal_softmax_backward = CausalSoftmaxBackward;
}

}  // namespace shardshift::kernels::SS_ISA
