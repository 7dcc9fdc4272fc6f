// Rotary position embedding (Su et al. 2021). Pair j of a head is its elements
// j and j + head_dim/2 (rotate-half), or 2j and 2j + 1 (interleaved).
//
//   (x0, x1) -> (x0 cos - x1 sin, x1 cos + x0 sin),  angle = p frequency[j]
//
// As computed: fma(x0, cos, -(x1 sin)) and fma(x1, cos, x0 sin).
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_ROPE_H_
#define SHARDSHIFT_KERNELS_ROPE_H_

#include <cstdint>

namespace shardshift::kernels {

// Rotates x in place. Head h of row r is the head_dim contiguous elements from
// x + r * row_stride + h * head_stride; its position is first_position + r.
// cos, sin: [max_positions, head_dim/2] from BuildRopeTable (rope_table.h).
// `inverse` negates the angle: the backward pass. REQUIRES: head_dim even,
// first_position + rows <= max_positions.
struct RopeArgs {
  float* x = nullptr;
  int64_t rows = 0;
  int64_t row_stride = 0;
  int64_t num_heads = 0;
  int64_t head_stride = 0;
  int64_t head_dim = 0;
  int64_t first_position = 0;
  const float* cos = nullptr;
  const float* sin = nullptr;
  bool inverse = false;
  bool interleaved = false;
};

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_ROPE_H_
