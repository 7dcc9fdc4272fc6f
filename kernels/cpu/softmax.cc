// SPDX-License-Identifier: Apache-2.0
#include "kernels/softmax.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/math.h"

namespace shardshift::kernels::SS_ISA {
namespace {

void Fill(float* begin, float* end, float value) {
  for (; begin < end; ++begin) *begin = value;
}

// The first key that query `i` sees.
int64_t FirstKey(int64_t i, int64_t window) {
  return window > 0 && i >= window ? i - window + 1 : 0;
}

// The first key of the vector that `key` is in: lanes go by the key's index.
int64_t VectorOf(int64_t key) { return key & ~int64_t{15}; }

// A row of few keys goes with one of many, so that all threads have as much to
// do. `lanes_ns`: of ParallelForRows.
template <typename Body>
void ForCausalRows(int64_t size, int64_t lanes_ns, const Body& body) {
  ParallelForRows((size + 1) / 2, size, lanes_ns, [&](int64_t i) {
    body(i);
    if (size - 1 - i > i) body(size - 1 - i);
  });
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
  ForCausalRows(args.size, 10, [&](int64_t i) {
    float* row = args.scores + i * args.size;
    const int64_t first = FirstKey(i, args.window);
    const int64_t begin = VectorOf(first);
    // Their exponentials are +0.
    Fill(row + begin, row + first, -__builtin_inff());
    ForwardRow(row + begin, i + 1 - begin, args.scale);
    Fill(row, row + first, 0.0F);
    Fill(row + i + 1, row + args.size, 0.0F);
  });
}

void CausalSoftmaxBackward(const CausalSoftmaxBackwardArgs& args) {
  const F16 scale = Broadcast(args.scale);
  ForCausalRows(args.size, 5, [&](int64_t i) {
    const int64_t first = FirstKey(i, args.window);
    const int64_t begin = VectorOf(first);
    const int64_t keys = i + 1 - begin;
    const float* p = args.p + i * args.size + begin;
    float* row = args.dp + i * args.size + begin;
    Fill(row, row + (first - begin), 0.0F);
    F16 dots = Broadcast(0.0F);
    ForLanes(keys, [&](int64_t j, int64_t count) {
      dots = Fma(Load(row + j, count), Load(p + j, count), dots);
    });
    const F16 dot = Broadcast(FoldLanes(dots));
    ForLanes(keys, [&](int64_t j, int64_t count) {
      const F16 d = Load(row + j, count) - dot;
      Store(scale * (Load(p + j, count) * d), row + j, count);
    });
    float* whole = args.dp + i * args.size;
    Fill(whole, whole + first, 0.0F);
    Fill(whole + i + 1, whole + args.size, 0.0F);
  });
}

}  // namespace

void InstallSoftmax(Kernels& table) {
  table.causal_softmax_forward = CausalSoftmaxForward;
  table.causal_softmax_backward = CausalSoftmaxBackward;
}

}  // namespace shardshift::kernels::SS_ISA
