// The size of a tensor that a file describes.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_TENSOR_BYTES_H_
#define SHARDSHIFT_RESHARD_FORMATS_TENSOR_BYTES_H_

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/box.h"
#include "ckpt/core/dtype.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {

// Errors: OutOfRange for a negative extent, or if the product of the non-zero
// extents and the item size does not fit int64_t.
inline absl::StatusOr<int64_t> TensorBytes(ckpt::DType dtype,
                                           const ckpt::Shape& shape) {
  SS_ASSIGN_OR_RETURN(const int64_t elements, ckpt::CheckedNumElements(shape));
  const int64_t item = ckpt::ItemSize(dtype);
  if (elements > std::numeric_limits<int64_t>::max() / item) {
    return absl::OutOfRangeError(
        absl::StrCat(ckpt::ToString(shape), " of ", item,
                     " bytes an element does not fit 64 bits"));
  }
  return elements * item;
}

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_TENSOR_BYTES_H_
