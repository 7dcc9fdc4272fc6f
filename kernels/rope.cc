// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.h"

#include <vector>

#include "kernels/math.h"

namespace shardshift::kernels {

void BuildRopeTable(double base, int64_t max_positions, int64_t head_dim,
                    float* cos, float* sin) {
  const int64_t half = head_dim / 2;
  const double log_base = Log(base);
  std::vector<double> frequency(half);
  for (int64_t j = 0; j < half; ++j) {
    frequency[j] = Exp(-log_base * static_cast<double>(2 * j) /
                       static_cast<double>(head_dim));
  }
  for (int64_t p = 0; p < max_positions; ++p) {
    for (int64_t j = 0; j < half; ++j) {
      const SinCosResult value = SinCos(static_cast<double>(p) * frequency[j]);
      cos[p * half + j] = static_cast<float>(value.cos);
      sin[p * half + j] = static_cast<float>(value.sin);
    }
  }
}

}  // namespace shardshift::kernels
