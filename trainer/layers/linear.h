// The products of a linear layer on whole matrices of one rank, in canonical
// order: weights are [out, in], y = x W^T.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_LINEAR_H_
#define SHARDSHIFT_TRAINER_LAYERS_LINEAR_H_

#include <cstdint>

#include "kernels/kernels.h"

namespace shardshift::trainer {

struct LinearShape {
  int64_t rows = 0;
  int64_t in = 0;
  int64_t out = 0;
};

// y = x W^T over `leaves` leaves of the inputs. x: [rows, in]; y: [rows, out].
void MultiplyLinear(const kernels::Kernels& kernels, const LinearShape& shape,
                    const float* x, const float* weight, int64_t leaves,
                    float* y);

// dx = dy W over `leaves` leaves of the outputs, which are `parts` blocks.
void MultiplyLinearBackward(const kernels::Kernels& kernels,
                            const LinearShape& shape, const float* dy,
                            const float* weight, int64_t leaves, int64_t parts,
                            float* dx);

// dW (=|+=) dy^T x, a chain over the rows.
void MultiplyLinearGradient(const kernels::Kernels& kernels,
                            const LinearShape& shape, const float* dy,
                            const float* x, bool accumulate, float* d_weight);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_LINEAR_H_
