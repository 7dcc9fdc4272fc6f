// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace shardshift::ckpt {
namespace {

bool IsFloat(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E5M2:
    case DType::kF8E4M3:
      return true;
    default:
      return false;
  }
}

template <typename T>
void Store(std::byte* element, T value) {
  std::memcpy(element, &value, sizeof(T));
}

// A float of up to 16 bits: sign, exponent, mantissa.
struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  uint32_t overflow;  // what follows the largest finite value
  uint32_t nan;
};
constexpr SmallFloat kF16 = {5, 10, 0x7c00, 0x7e00};
constexpr SmallFloat kBF16 = {8, 7, 0x7f80, 0x7fc0};
constexpr SmallFloat kE5M2 = {5, 2, 0x7c, 0x7e};
constexpr SmallFloat kE4M3 = {4, 3, 0x7f, 0x7f};

uint32_t Encode(const SmallFloat& type, double value) {
  const uint32_t sign = std::signbit(value)
                            ? 1u << (type.exponent_bits + type.mantissa_bits)
                            : 0u;
  if (std::isnan(value)) return sign | type.nan;
  if (std::isinf(value)) return sign | type.overflow;
  const double magnitude = std::abs(value);
  const int least_exponent = 2 - (1 << (type.exponent_bits - 1));
  const int exponent = magnitude == 0
                           ? least_exponent
                           : std::max(least_exponent, std::ilogb(magnitude));
  if (exponent - least_exponent >= 1 << type.exponent_bits) {
    return sign | type.overflow;
  }
  // Scaling is exact, so this rounds once. A mantissa that rounds up to the
  // next power of two carries into the exponent, as it should.
  const auto mantissa = static_cast<uint32_t>(
      std::nearbyint(std::ldexp(magnitude, type.mantissa_bits - exponent)));
  const uint32_t bits =
      (static_cast<uint32_t>(exponent - least_exponent) << type.mantissa_bits) +
      mantissa;
  return sign | std::min(bits, type.overflow);
}

void StoreDouble(DType dtype, double value, std::byte* element) {
  switch (dtype) {
    case DType::kF64:
      return Store(element, value);
    case DType::kF32:
      return Store(element, static_cast<float>(value));
    case DType::kF16:
      return Store(element, static_cast<uint16_t>(Encode(kF16, value)));
    case DType::kBF16:
      return Store(element, static_cast<uint16_t>(Encode(kBF16, value)));
    case DType::kF8E5M2:
      return Store(element, static_cast<uint8_t>(Encode(kE5M2, value)));
    case DType::kF8E4M3:
      return Store(element, static_cast<uint8_t>(Encode(kE4M3, value)));
    default:
      return;
  }
}

// A double forgets which NaN it came from; the sign is kept here.
double ToSignedDouble(DType dtype, const std::byte* element) {
  const double value = ToDouble(dtype, element);
  if (!std::isnan(value)) return value;
  const auto last = std::to_integer<uint8_t>(element[ItemSize(dtype) - 1]);
  return std::copysign(value, last >> 7 ? -1.0 : 1.0);
}

// The rule in integers, for the pair that matters: adding half of what is cut
// off, less one if the last bit kept is 0, carries where it should.
uint16_t RoundToBF16(uint32_t bits) {
  const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const uint32_t nan = (bits & 0x80000000) | 0x7fc00000;
  return static_cast<uint16_t>((is_nan ? nan : rounded) >> 16);
}

void ConvertF32ToBF16(const std::byte* src, std::byte* dst, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, src + 4 * i, sizeof(bits));
    Store(dst + 2 * i, RoundToBF16(bits));
  }
}

}  // namespace

absl::Status CheckConversion(DType from, DType to) {
  if (from == to || (IsFloat(from) && IsFloat(to))) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "cannot convert ", Name(from), " to ", Name(to),
      ": only F64, F32, F16, BF16, F8_E5M2 and F8_E4M3 into each other"));
}

void ConvertValues(DType from, const std::byte* src, DType to, std::byte* dst,
                   int64_t count) {
  const int64_t src_size = ItemSize(from);
  const int64_t dst_size = ItemSize(to);
  if (from == to) {
    std::memcpy(dst, src, static_cast<size_t>(count * src_size));
  } else if (from == DType::kF32 && to == DType::kBF16) {
    ConvertF32ToBF16(src, dst, count);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      StoreDouble(to, ToSignedDouble(from, src + i * src_size),
                  dst + i * dst_size);
    }
  }
}

}  // namespace shardshift::ckpt
