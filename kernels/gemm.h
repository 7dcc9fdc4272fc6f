// Matrix product with a fixed order of sums.
//
//   C(i,j) (=|+=) sum over k of A(i,k) B(k,j)
//
// Order, for each element of C on its own: the k axis is cut into `leaves`
// leaves; each leaf is one chain acc = fma(a, b, acc) from +0, k ascending; the
// leaves are combined by the tree of tree.h; then C = result, or C = C +
// result. So the bits of an element do not depend on m, n, its place, or
// blocking.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_GEMM_H_
#define SHARDSHIFT_KERNELS_GEMM_H_

#include <cstdint>

namespace shardshift::kernels {

// A read-only matrix: element (i,j) is data[i * row_stride + j * col_stride].
// Swapping the strides transposes it.
struct StridedMatrix {
  const float* data = nullptr;
  int64_t row_stride = 0;
  int64_t col_stride = 0;
};

// a: [m,k]; b: [k,n]; c: [m,n], row stride ldc. Sizes may be 0; k = 0 counts as
// a sum of +0. c overlaps neither a nor b.
//
// With `parts` = P > 1, leaf g is the P ranges of length len = k / (P leaves)
// that begin at p k/P + g len, p = 0..P-1, one chain through all of them: a
// matrix whose rows are P stacked blocks then has the same leaves as its
// tensor-parallel slices.
// REQUIRES: leaves >= 1, parts >= 1, k % (parts * leaves) == 0.
struct GemmArgs {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  StridedMatrix a = {};
  StridedMatrix b = {};
  float* c = nullptr;
  int64_t ldc = 0;
  int64_t leaves = 1;
  int64_t parts = 1;
  bool accumulate = false;  // C = C + result instead of C = result.
};

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_GEMM_H_
