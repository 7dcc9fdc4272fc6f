// Causal softmax of one head's score matrix: query i sees keys 0..i.
//
//   p[i,j] = exp(t[i,j] - max_j t[i,j]) (1 / Z_i) for j <= i, else +0
//   t = scale scores;  Z_i = sum over j <= i of the exponentials
//   dscores = scale (p (dp - sum over j <= i of dp p))
//
// Both sums are lane sums over the key index (lane_sum.h), so a row's bits
// depend neither on `size` nor on other rows. exp is ref/math.h's polynomial.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_SOFTMAX_H_
#define SHARDSHIFT_KERNELS_SOFTMAX_H_

#include <cstdint>

namespace shardshift::kernels {

// In place, scores -> p: [size,size], contiguous. What lies above the diagonal
// is not read and becomes +0.
struct CausalSoftmaxForwardArgs {
  float* scores = nullptr;
  int64_t size = 0;
  float scale = 1.0F;
};

// In place, dp -> dscores: [size,size]; p: [size,size] from the forward pass.
// What lies above the diagonal is not read and becomes +0.
struct CausalSoftmaxBackwardArgs {
  const float* p = nullptr;
  float* dp = nullptr;
  int64_t size = 0;
  float scale = 1.0F;
};

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_SOFTMAX_H_
