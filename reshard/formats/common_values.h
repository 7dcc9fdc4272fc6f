// Values that checkpoints hold beside tensors, as torch.save writes them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_COMMON_VALUES_H_
#define SHARDSHIFT_RESHARD_FORMATS_COMMON_VALUES_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "ckpt/core/box.h"
#include "ckpt/core/dtype.h"
#include "reshard/formats/pickle_value.h"

namespace shardshift::reshard {

// As many as PyTorch has.
inline constexpr size_t kMaxDims = 64;

// A list of ints such as a torch.Size. Errors: DataLoss for what is none, for
// one below zero, and for more than kMaxDims.
absl::StatusOr<ckpt::Shape> AsShape(const PickleValue& value);

// A NumPy array, or a scalar as one of no dims.
struct NumpyArray {
  ckpt::Shape shape;
  // Row-major, or with `column_major` the first dim fastest. Little-endian.
  std::string bytes;
  ckpt::DType dtype = ckpt::DType::kU8;
  bool column_major = false;
};

// Errors: DataLoss for what is none, or has not the bytes of its shape;
// Unimplemented for big-endian values and other dtypes.
absl::StatusOr<NumpyArray> AsNumpyArray(const PickleValue& value);

// What an io.BytesIO holds. Errors: DataLoss for what is none.
absl::StatusOr<std::string> AsBytesIo(const PickleValue& value);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_COMMON_VALUES_H_
