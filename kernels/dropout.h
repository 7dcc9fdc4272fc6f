// Dropout (Srivastava et al. 2014) with a mask that is a function of indices:
// elements are dropped by a counter-based generator (random.h), so nothing is
// kept from forward to backward, and no state but the seed from step to step.
//
//   out[r,c] = keep(r,c) ? x[r,c] (1 / (1 - p)) : +0
//   keep(r,c): word c mod 4 of Philox4x32({c / 4, first_row + r, sample}, key)
//              is below (1 - p) 2^32
//
// Elementwise: the gradient goes through the same function.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_DROPOUT_H_
#define SHARDSHIFT_KERNELS_DROPOUT_H_

#include <cstdint>

namespace shardshift::kernels {

// x, out: [rows,cols]; out may be x. With `causal`, row r has columns 0..r
// only: those beyond are not read and become +0. REQUIRES: 0 <= probability <
// 1; first_row + rows and cols below 2^32.
struct DropoutArgs {
  const float* x = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t first_row = 0;
  bool causal = false;
  uint64_t key = 0;
  int64_t sample = 0;
  double probability = 0;
  float* out = nullptr;
};

// One code for all instruction sets.
void Dropout(const DropoutArgs& args);

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_DROPOUT_H_
