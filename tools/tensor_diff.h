// Comparing the values of one tensor in two checkpoints.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_TENSOR_DIFF_H_
#define SHARDSHIFT_TOOLS_TENSOR_DIFF_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "ckpt/core/box.h"
#include "ckpt/core/dtype.h"
#include "ckpt/reader.h"

namespace shardshift {

// The elements of two tensors whose bits differ. The maxima leave out those
// where either is NaN, which num_nan counts. The two parts of a complex number
// count as one element, and each alone for the maxima.
struct TensorDifference {
  int64_t num_differing = 0;
  int64_t num_nan = 0;
  double max_abs = 0;    // infinite beside an infinity
  uint64_t max_ulp = 0;  // steps from one value of the dtype to the next
  int64_t first = 0;     // the first of them, in row-major order
};

// Steps between two values of a dtype, neither of them NaN: 0 from -0.0 to
// +0.0, 1 from the largest finite number to infinity.
// REQUIRES: dtype is its own component.
uint64_t UlpDistance(ckpt::DType dtype, const std::byte* a, const std::byte* b);

// Compares images of equal size; `first` counts from their beginning.
TensorDifference DiffElements(ckpt::DType dtype, std::span<const std::byte> a,
                              std::span<const std::byte> b);

// Compares bit for bit, in bounded memory, however either side is cut. Calls
// `on_bytes` now and then with how many bytes of both were read since.
// REQUIRES: both tensors have the same dtype and shape.
absl::StatusOr<TensorDifference> DiffTensor(
    const ckpt::Reader& a, int64_t tensor_a, const ckpt::Reader& b,
    int64_t tensor_b, absl::FunctionRef<void(int64_t num_bytes)> on_bytes);

// The index of the element at `position` of the row-major order of `shape`.
ckpt::Shape IndexAt(const ckpt::Shape& shape, int64_t position);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_TENSOR_DIFF_H_
