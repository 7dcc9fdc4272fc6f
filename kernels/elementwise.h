// Bias, sums over rows, and the simplest element functions.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_ELEMENTWISE_H_
#define SHARDSHIFT_KERNELS_ELEMENTWISE_H_

#include <cstdint>

namespace shardshift::kernels {

// x[r,c] = x[r,c] + bias[c]. x: [rows,cols], row stride ldx; bias: [cols].
struct AddBiasArgs {
  float* x = nullptr;
  int64_t ldx = 0;
  const float* bias = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
};

// acc[c] = acc[c] + dy[r,c] for r = 0, 1, ..: the chain goes on from the value
// in acc. dy: [rows,cols], row stride ld_dy; acc: [cols].
struct ColumnSumArgs {
  const float* dy = nullptr;
  int64_t ld_dy = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  float* acc = nullptr;
};

// out[i] = a[i] + b[i]. out may be a or b.
struct AddArgs {
  const float* a = nullptr;
  const float* b = nullptr;
  int64_t count = 0;
  float* out = nullptr;
};

// x[i] = x[i] * factor.
struct ScaleArgs {
  float* x = nullptr;
  int64_t count = 0;
  float factor = 1.0F;
};

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_ELEMENTWISE_H_
