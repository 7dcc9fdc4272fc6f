// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/common_values.h"

#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {
namespace {

using ckpt::DType;

bool IsOfNumpy(const PickleValue& value, absl::string_view name) {
  return value.IsObjectOf("numpy._core.multiarray", name) ||
         value.IsObjectOf("numpy.core.multiarray", name);
}

// numpy.dtype: called with ("u4", ...), and a state of (version, byte order,
// ...).
absl::StatusOr<DType> AsNumpyDType(const PickleValue& value) {
  static constexpr auto kDTypes =
      std::to_array<std::pair<absl::string_view, DType>>({{"b1", DType::kBool},
                                                          {"u1", DType::kU8},
                                                          {"i1", DType::kI8},
                                                          {"u2", DType::kU16},
                                                          {"i2", DType::kI16},
                                                          {"f2", DType::kF16},
                                                          {"u4", DType::kU32},
                                                          {"i4", DType::kI32},
                                                          {"f4", DType::kF32},
                                                          {"u8", DType::kU64},
                                                          {"i8", DType::kI64},
                                                          {"f8", DType::kF64},
                                                          {"c8", DType::kC64}});
  if (!value.IsObjectOf("numpy", "dtype")) return value.Wrong("a numpy.dtype");
  SS_ASSIGN_OR_RETURN(const PickleValue name_value, value.Args().At(0));
  SS_ASSIGN_OR_RETURN(const absl::string_view name, name_value.AsString());
  SS_ASSIGN_OR_RETURN(const PickleValue state, value.State());
  SS_ASSIGN_OR_RETURN(const PickleValue order_value, state.At(1));
  SS_ASSIGN_OR_RETURN(const absl::string_view order, order_value.AsString());
  for (const auto& [known, dtype] : kDTypes) {
    if (known == name && order != ">") return dtype;
  }
  return absl::UnimplementedError(absl::StrCat(value.Where(),
                                               " is numpy's dtype \"", order,
                                               name, "\", which is not read"));
}

absl::Status CheckSize(const PickleValue& value, const NumpyArray& array) {
  const auto num_elements = ckpt::CheckedNumElements(array.shape);
  int64_t num_bytes = 0;
  if (!num_elements.ok() ||
      __builtin_mul_overflow(*num_elements, ckpt::ItemSize(array.dtype),
                             &num_bytes) ||
      num_bytes != std::ssize(array.bytes)) {
    return value.Error(absl::StrCat(
        "is an array of shape ", ckpt::ToString(array.shape), " of ",
        ckpt::Name(array.dtype), ", but has ", array.bytes.size(), " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ckpt::Shape> AsShape(const PickleValue& value) {
  SS_ASSIGN_OR_RETURN(const size_t ndim, value.ListSize());
  if (ndim > kMaxDims) {
    return value.Error(
        absl::StrCat("has ", ndim, " dims, at most ", kMaxDims, " are read"));
  }
  SS_ASSIGN_OR_RETURN(const std::vector<int64_t> ints, value.AsInts());
  for (const int64_t n : ints) {
    if (n < 0) return value.Error(absl::StrCat("has a number below 0, ", n));
  }
  return ckpt::Shape(ints.begin(), ints.end());
}

absl::StatusOr<NumpyArray> AsNumpyArray(const PickleValue& value) {
  NumpyArray array;
  if (IsOfNumpy(value, "scalar")) {
    SS_ASSIGN_OR_RETURN(const PickleValue dtype, value.Args().At(0));
    SS_ASSIGN_OR_RETURN(array.dtype, AsNumpyDType(dtype));
    SS_ASSIGN_OR_RETURN(const PickleValue bytes, value.Args().At(1));
    SS_ASSIGN_OR_RETURN(array.bytes, bytes.AsBytes());
  } else if (IsOfNumpy(value, "_reconstruct")) {
    // (version, shape, dtype, column-major, bytes)
    SS_ASSIGN_OR_RETURN(const PickleValue state, value.State());
    SS_ASSIGN_OR_RETURN(const PickleValue shape, state.At(1));
    SS_ASSIGN_OR_RETURN(array.shape, AsShape(shape));
    SS_ASSIGN_OR_RETURN(const PickleValue dtype, state.At(2));
    SS_ASSIGN_OR_RETURN(array.dtype, AsNumpyDType(dtype));
    SS_ASSIGN_OR_RETURN(const PickleValue column_major, state.At(3));
    SS_ASSIGN_OR_RETURN(array.column_major, column_major.AsBool());
    SS_ASSIGN_OR_RETURN(const PickleValue bytes, state.At(4));
    SS_ASSIGN_OR_RETURN(array.bytes, bytes.AsBytes());
  } else {
    return value.Wrong("a numpy.ndarray");
  }
  SS_RETURN_IF_ERROR(CheckSize(value, array));
  return array;
}

absl::StatusOr<std::string> AsBytesIo(const PickleValue& value) {
  if (!value.IsObjectOf("_io", "BytesIO") &&
      !value.IsObjectOf("io", "BytesIO")) {
    return value.Wrong("an io.BytesIO");
  }
  // (bytes, position, attributes)
  SS_ASSIGN_OR_RETURN(const PickleValue state, value.State());
  SS_ASSIGN_OR_RETURN(const PickleValue bytes, state.At(0));
  return bytes.AsBytes();
}

}  // namespace shardshift::reshard
