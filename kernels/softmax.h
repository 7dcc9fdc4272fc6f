// Causal softmax of one head's score matrix: query i sees keys 0..i, or with a
// window of w the last w of them.
//
//   p[i,j] = exp(t[i,j] - max_j t[i,j]) (1 / Z_i) for the seen j, else +0
//   t = scale scores;  Z_i = sum over the seen j of the exponentials
//   dscores = scale (p (dp - sum over the seen j of dp p))
//
// Both sums are lane sums over the key index (lane_sum.h), so a row's bits
// depend neither on `size` nor on other rows. exp is ref/math.h's polynomial.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_SOFTMAX_H_
#define SHARDSHIFT_KERNELS_SOFTMAX_H_

#include <cstdint>

namespace shardshift::kernels {

// In place, scores -> p: [size,size], contiguous. What is not seen is not read
// and becomes +0. window 0: all keys up to the query's own.
// REQUIRES: scale > 0.
struct CausalSoftmaxForwardArgs {
  float* scores = nullptr;
  int64_t size = 0;
  float scale = 1.0F;
  int64_t window = 0;
};

// In place, dp -> dscores: [size,size]; p: [size,size] from the forward pass
// with the same window. What is not seen is not read and becomes +0.
struct CausalSoftmaxBackwardArgs {
  const float* p = nullptr;
  float* dp = nullptr;
  int64_t size = 0;
  float scale = 1.0F;
  int64_t window = 0;
};

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_SOFTMAX_H_
