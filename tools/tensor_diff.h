// Comparing the values of one tensor in two checkpoints.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_TENSOR_DIFF_H_
#define SHARDSHIFT_TOOLS_TENSOR_DIFF_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "ckpt/core/box.h"
#include "ckpt/reader.h"

namespace shardshift {

struct TensorDifference {
  int64_t num_differing = 0;      // elements whose bytes differ
  double max_abs_difference = 0;  // infinite where one side is NaN
  ckpt::Shape first_index;        // in row-major order
};

// Compares bit for bit, in bounded memory, however either side is cut.
// REQUIRES: both tensors have the same dtype and shape.
absl::StatusOr<TensorDifference> DiffTensor(const ckpt::Reader& a,
                                            int64_t tensor_a,
                                            const ckpt::Reader& b,
                                            int64_t tensor_b);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_TENSOR_DIFF_H_
