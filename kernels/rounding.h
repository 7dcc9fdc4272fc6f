// Rounding to 16-bit formats, of values that stay in floats.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_ROUNDING_H_
#define SHARDSHIFT_KERNELS_ROUNDING_H_

#include <cstdint>

namespace shardshift::kernels {

// x[i] becomes the nearest number of the format, of two the even one, with its
// denormals; beyond the largest one infinity; of any NaN the one NaN
// 0x7FC00000. Source: IEEE 754-2019, 4.3.1. bf16: 8 bits of exponent, 7 of
// mantissa; fp16, binary16: 5 and 10.
struct RoundArgs {
  float* x = nullptr;
  int64_t count = 0;
};

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_ROUNDING_H_
