// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/linear.h"

namespace shardshift::trainer {
namespace {

using kernels::StridedMatrix;

StridedMatrix RowMajor(const float* data, int64_t columns) {
  return {.data = data, .row_stride = columns, .col_stride = 1};
}
StridedMatrix Transposed(const float* data, int64_t columns) {
  return {.data = data, .row_stride = 1, .col_stride = columns};
}

}  // namespace

void MultiplyLinear(const kernels::Kernels& kernels, const LinearShape& shape,
                    const float* x, const float* weight, int64_t leaves,
                    float* y) {
  kernels.gemm({.m = shape.rows,
                .n = shape.out,
                .k = shape.in,
                .a = RowMajor(x, shape.in),
                .b = Transposed(weight, shape.in),
                .c = y,
                .ldc = shape.out,
                .leaves = leaves});
}

void MultiplyLinearBackward(const kernels::Kernels& kernels,
                            const LinearShape& shape, const float* dy,
                            const float* weight, int64_t leaves, int64_t parts,
                            float* dx) {
  kernels.gemm({.m = shape.rows,
                .n = shape.in,
                .k = shape.out,
                .a = RowMajor(dy, shape.out),
                .b = RowMajor(weight, shape.in),
                .c = dx,
                .ldc = shape.in,
                .leaves = leaves,
                .parts = parts});
}

void MultiplyLinearGradient(const kernels::Kernels& kernels,
                            const LinearShape& shape, const float* dy,
                            const float* x, bool accumulate, float* d_weight) {
  kernels.gemm({.m = shape.out,
                .n = shape.in,
                .k = shape.rows,
                .a = Transposed(dy, shape.out),
                .b = RowMajor(x, shape.in),
                .c = d_weight,
                .ldc = shape.in,
                .accumulate = accumulate});
}

}  // namespace shardshift::trainer
