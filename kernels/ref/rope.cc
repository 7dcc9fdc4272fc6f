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
  // Between the pairs of a head, and within a pair.
  const int64_t step = args.interleaved ? 2 : 1;
  const int64_t apart = args.interleaved ? 1 : half;
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* cos = args.cos + (args.first_position + r) * half;
    const float* sin = args.sin + (args.first_position + r) * half;
    for (int64_t h = 0; h < args.num_heads; ++h) {
      float* x = args.x + r * args.row_stride + h * args.head_stride;
      for (int64_t j = 0; j < half; ++j) {
        const float s = args.inverse ? -sin[j] : sin[j];
        float* pair = x + step * j;
        const float x0 = pair[0];
        const float x1 = pair[apart];
        pair[0] = std::fmaf(x0, cos[j], -(x1 * s));
        pair[apart] = std::fmaf(x1, cos[j], x0 * s);
      }
    }
  }
}

}  // namespace

void InstallRope(Kernels& table) { table.rope = Rope; }

}  // namespace shardshift::kernels::ref
