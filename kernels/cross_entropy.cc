// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy.h"

#include "kernels/math.h"

namespace shardshift::kernels {

void TokenLoss(const float* sum, const float* predicted, int64_t rows,
               float* loss) {
  for (int64_t r = 0; r < rows; ++r) {
    loss[r] = static_cast<float>(Log(sum[r])) - predicted[r];
  }
}

}  // namespace shardshift::kernels
