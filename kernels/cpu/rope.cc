// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/lanes.h"

namespace shardshift::kernels::SS_ISA {
namespace {

void RotateHead(const float* cos, const float* sin, int64_t half, bool inverse,
                float* x) {
  ForLanes(half, [&](int64_t j, int64_t count) {
    const F16 c = Load(cos + j, count);
    const F16 s = inverse ? -Load(sin + j, count) : Load(sin + j, count);
    const F16 x0 = Load(x + j, count);
    const F16 x1 = Load(x + half + j, count);
    Store(Fma(x0, c, -(x1 * s)), x + j, count);
    Store(Fma(x1, c, x0 * s), x + half + j, count);
  });
}

void Rope(const RopeArgs& args) {
  const int64_t half = args.head_dim / 2;
  for (int64_t r = 0; r < args.rows; ++r) {
    const int64_t at = (args.first_position + r) * half;
    for (int64_t h = 0; h < args.num_heads; ++h) {
      RotateHead(args.cos + at, args.sin + at, half, args.inverse,
                 args.x + r * args.row_stride + h * args.head_stride);
    }
  }
}

}  // namespace

void InstallRope(Kernels& table) { table.rope = Rope; }

}  // namespace shardshift::kernels::SS_ISA
