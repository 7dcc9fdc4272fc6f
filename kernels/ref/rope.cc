// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.h"

#include <cassert>
#include <cmath>

#include "kernels/ref/ref.h"

namespace shardshift::kernels::ref {
namespace {

void Rope(const RopeArgs& args) {
  assert(args.head_dim % 2 == 0);
  const int64_t half = args.head_dim / 2;
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* cos = args.cos + (args.first_position + r) * half;
    const float* sin = args.sin + (args.first_position + r) * half;
    for (int64_t h = 0; h < args.num_heads; ++h) {
      float* x = args.x + r * args.row_stride + h * args.head_stride;
      for (int64_t j = 0; j < half; ++j) {
        const float s = args.inverse ? -sin[j] : sin[j];
        const float x0 = x[j];
        const float x1 = x[half + j];
        x[j] = std::fmaf(x0, cos[j], -(x1 * s));
        x[half + j] = std::fmaf(x1, cos[j], x0 * s);
      }
    }
  }
}

}  // namespace

void InstallRope(Kernels& table) { table.rope = Rope; }

}  // namespace shardshift::kernels::ref
