// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hdf5/types.h"

#include <utility>

namespace shardshift::ckpt {
namespace {

Handle HalfFloat(size_t exponent_bits, size_t mantissa_bits) {
  Handle type(H5Tcopy(H5T_IEEE_F32LE));
  const size_t bias = (size_t{1} << (exponent_bits - 1)) - 1;
  // The fields move before the size shrinks below where they were.
  const bool ok = H5Tset_fields(type.get(), 15, mantissa_bits, exponent_bits, 0,
                                mantissa_bits) >= 0 &&
                  H5Tset_size(type.get(), 2) >= 0 &&
                  H5Tset_ebias(type.get(), bias) >= 0;
  return ok ? std::move(type) : Handle();
}

Handle ComplexOfFloats() {
  Handle type(H5Tcreate(H5T_COMPOUND, 8));
  const bool ok = H5Tinsert(type.get(), "r", 0, H5T_IEEE_F32LE) >= 0 &&
                  H5Tinsert(type.get(), "i", 4, H5T_IEEE_F32LE) >= 0;
  return ok ? std::move(type) : Handle();
}

Handle Boolean() {
  Handle type(H5Tenum_create(H5T_STD_I8LE));
  const int8_t no = 0;
  const int8_t yes = 1;
  const bool ok = H5Tenum_insert(type.get(), "FALSE", &no) >= 0 &&
                  H5Tenum_insert(type.get(), "TRUE", &yes) >= 0;
  return ok ? std::move(type) : Handle();
}

}  // namespace

Handle FileType(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return Boolean();
    case DType::kU8:
    case DType::kF8E5M2:
    case DType::kF8E4M3:
    case DType::kF8E8M0:
      return Handle(H5Tcopy(H5T_STD_U8LE));
    case DType::kI8:
      return Handle(H5Tcopy(H5T_STD_I8LE));
    case DType::kI16:
      return Handle(H5Tcopy(H5T_STD_I16LE));
    case DType::kU16:
      return Handle(H5Tcopy(H5T_STD_U16LE));
    case DType::kF16:
      return HalfFloat(5, 10);
    case DType::kBF16:
      return HalfFloat(8, 7);
    case DType::kI32:
      return Handle(H5Tcopy(H5T_STD_I32LE));
    case DType::kU32:
      return Handle(H5Tcopy(H5T_STD_U32LE));
    case DType::kF32:
      return Handle(H5Tcopy(H5T_IEEE_F32LE));
    case DType::kC64:
      return ComplexOfFloats();
    case DType::kF64:
      return Handle(H5Tcopy(H5T_IEEE_F64LE));
    case DType::kI64:
      return Handle(H5Tcopy(H5T_STD_I64LE));
    case DType::kU64:
      return Handle(H5Tcopy(H5T_STD_U64LE));
  }
  return Handle();
}

Handle TextType(int64_t num_bytes) {
  Handle type(H5Tcopy(H5T_C_S1));
  const bool ok =
      H5Tset_size(type.get(), static_cast<size_t>(num_bytes)) >= 0 &&
      H5Tset_strpad(type.get(), H5T_STR_NULLPAD) >= 0 &&
      H5Tset_cset(type.get(), H5T_CSET_UTF8) >= 0;
  return ok ? std::move(type) : Handle();
}

}  // namespace shardshift::ckpt
