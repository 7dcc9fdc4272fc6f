// Element types: every safetensors dtype of whole bytes.
// An item is little-endian.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_CORE_DTYPE_H_
#define SHARDSHIFT_CKPT_CORE_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shardshift::ckpt {

// The numbers are written in files: only ever add at the end.
enum class DType : uint8_t {
  kBool = 0,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};
inline constexpr int kNumDTypes = 17;

// Bytes of one element.
int64_t ItemSize(DType dtype);

// The safetensors name, e.g. "BF16".
absl::string_view Name(DType dtype);

// Errors: InvalidArgument for a name that is no safetensors dtype.
absl::StatusOr<DType> ParseDType(absl::string_view name);

// The dtype of an on-disk number, or nullopt.
std::optional<DType> DTypeFromNumber(uint8_t number);

// The real numbers an element consists of: C64 is two F32, any other dtype
// is one of itself.
DType ComponentDType(DType dtype);

// The value of one element as a double, exact but for I64 and U64 beyond
// 2^53. REQUIRES: dtype is its own component (not kC64).
double ToDouble(DType dtype, const std::byte* element);

// Shortest decimal text that reads back as the same value, e.g. "0.1",
// "-inf", "true", "1+2i".
std::string FormatValue(DType dtype, const std::byte* element);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_CORE_DTYPE_H_
