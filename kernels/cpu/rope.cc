// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/lanes.h"

namespace shardshift::kernels::SS_ISA {
namespace {

void RotateHalves(const float* cos, const float* sin, int64_t half,
                  bool inverse, float* x) {
  ForLanes(half, [&](int64_t j, int64_t count) {
    const F16 c = Load(cos + j, count);
    const F16 s = inverse ? -Load(sin + j, count) : Load(sin + j, count);
    const F16 x0 = Load(x + j, count);
    const F16 x1 = Load(x + half + j, count);
    Store(Fma(x0, c, -(x1 * s)), x + j, count);
    Store(Fma(x1, c, x0 * s), x + half + j, count);
  });
}

void RotateNeighbours(const float* cos, const float* sin, int64_t half,
                      bool inverse, float* x) {
  for (int64_t j = 0; j < half; ++j) {
    const float s = inverse ? -sin[j] : sin[j];
    const float x0 = x[2 * j];
    const float x1 = x[2 * j + 1];
    x[2 * j] = __builtin_fmaf(x0, cos[j], -(x1 * s));
    x[2 * j + 1] = __builtin_fmaf(x1, cos[j], x0 * s);
  }
}

void Rope(const RopeArgs& args) {
  const int64_t half = args.head_dim / 2;
  const auto rotate = args.interleaved ? RotateNeighbours : RotateHalves;
  for (int64_t r = 0; r < args.rows; ++r) {
    const int64_t at = (args.first_position + r) * half;
    for (int64_t h = 0; h < args.num_heads; ++h) {
      rotate(args.cos + at, args.sin + at, half, args.inverse,
             args.x + r * args.row_stride + h * args.head_stride);
    }
  }
}

}  // namespace

void InstallRope(Kernels& table) { table.rope = Rope; }

}  // namespace shardshift::kernels::SS_ISA
