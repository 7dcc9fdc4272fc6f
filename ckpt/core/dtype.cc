// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/dtype.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace shardshift::ckpt {
namespace {

struct DTypeFacts {
  const char* name;
  int64_t item_bytes;
};

// In the order of the enumerators.
constexpr std::array<DTypeFacts, kNumDTypes> kFacts = {{
    {"BOOL", 1},
    {"U8", 1},
    {"I8", 1},
    {"F8_E5M2", 1},
    {"F8_E4M3", 1},
    {"F8_E8M0", 1},
    {"I16", 2},
    {"U16", 2},
    {"F16", 2},
    {"BF16", 2},
    {"I32", 4},
    {"U32", 4},
    {"F32", 4},
    {"C64", 8},
    {"F64", 8},
    {"I64", 8},
    {"U64", 8},
}};

template <typename T>
T Load(const std::byte* element) {
  T value;
  std::memcpy(&value, element, sizeof(T));
  return value;
}

// The value of an IEEE-like float of the given field widths.
double DecodeFloat(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const int exponent =
      static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = bits >> (exponent_bits + mantissa_bits) ? -1.0 : 1.0;
  if (exponent == 0) {
    return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  }
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  return sign * std::ldexp(mantissa + (1u << mantissa_bits),
                           exponent - bias - mantissa_bits);
}

// E4M3 as trained models use it ("fn"): no infinity, and only the mantissa of
// all ones at the top exponent is NaN.
double DecodeE4M3(uint8_t bits) {
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<double>::quiet_NaN();
  if ((bits & 0x78) == 0x78) {
    const double sign = bits >> 7 ? -1.0 : 1.0;
    return sign * std::ldexp(8 + (bits & 7), 8 - 3);
  }
  return DecodeFloat(bits, 4, 3);
}

double DecodeE8M0(uint8_t bits) {
  if (bits == 0xff) return std::numeric_limits<double>::quiet_NaN();
  return std::ldexp(1.0, bits - 127);
}

template <typename T>
std::string Shortest(T value) {
  std::array<char, 64> text;
  const auto result =
      std::to_chars(text.data(), text.data() + text.size(), value);
  return std::string(text.data(), result.ptr);
}

}  // namespace

int64_t ItemSize(DType dtype) {
  return kFacts[static_cast<size_t>(dtype)].item_bytes;
}

absl::string_view Name(DType dtype) {
  return kFacts[static_cast<size_t>(dtype)].name;
}

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  for (size_t i = 0; i < kFacts.size(); ++i) {
    if (name == kFacts[i].name) return static_cast<DType>(i);
  }
  std::string known;
  for (const DTypeFacts& facts : kFacts) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", facts.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown dtype \"", name, "\", expected one of ", known));
}

std::optional<DType> DTypeFromNumber(uint8_t number) {
  if (number >= kNumDTypes) return std::nullopt;
  return static_cast<DType>(number);
}

DType ComponentDType(DType dtype) {
  return dtype == DType::kC64 ? DType::kF32 : dtype;
}

double ToDouble(DType dtype, const std::byte* element) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
      return Load<uint8_t>(element);
    case DType::kI8:
      return Load<int8_t>(element);
    case DType::kF8E5M2:
      return DecodeFloat(Load<uint8_t>(element), 5, 2);
    case DType::kF8E4M3:
      return DecodeE4M3(Load<uint8_t>(element));
    case DType::kF8E8M0:
      return DecodeE8M0(Load<uint8_t>(element));
    case DType::kI16:
      return Load<int16_t>(element);
    case DType::kU16:
      return Load<uint16_t>(element);
    case DType::kF16:
      return DecodeFloat(Load<uint16_t>(element), 5, 10);
    case DType::kBF16:
      return std::bit_cast<float>(uint32_t{Load<uint16_t>(element)} << 16);
    case DType::kI32:
      return Load<int32_t>(element);
    case DType::kU32:
      return Load<uint32_t>(element);
    case DType::kF32:
    case DType::kC64:
      return Load<float>(element);
    case DType::kF64:
      return Load<double>(element);
    case DType::kI64:
      return static_cast<double>(Load<int64_t>(element));
    case DType::kU64:
      return static_cast<double>(Load<uint64_t>(element));
  }
  return 0;
}

std::string FormatValue(DType dtype, const std::byte* element) {
  switch (dtype) {
    case DType::kBool:
      return Load<uint8_t>(element) != 0 ? "true" : "false";
    case DType::kI64:
      return absl::StrCat(Load<int64_t>(element));
    case DType::kU64:
      return absl::StrCat(Load<uint64_t>(element));
    case DType::kF64:
      return Shortest(Load<double>(element));
    case DType::kC64: {
      const std::string imaginary = FormatValue(DType::kF32, element + 4);
      const char* plus = imaginary.front() == '-' ? "" : "+";
      return absl::StrCat(FormatValue(DType::kF32, element), plus, imaginary,
                          "i");
    }
    default:
      // Every other dtype is exact in a float, or in an integer of 32 bits
      // whose shortest double has no fraction.
      if (ItemSize(dtype) == 4 && dtype != DType::kF32) {
        return absl::StrCat(static_cast<int64_t>(ToDouble(dtype, element)));
      }
      return Shortest(static_cast<float>(ToDouble(dtype, element)));
  }
}

}  // namespace shardshift::ckpt
