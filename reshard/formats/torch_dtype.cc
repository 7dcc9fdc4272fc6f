// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/torch_dtype.h"

#include <array>

#include "absl/strings/str_cat.h"

namespace shardshift::reshard {
namespace {

using ckpt::DType;

struct Names {
  DType dtype = DType::kBool;
  absl::string_view name;
  absl::string_view storage_class;  // "" if there is none
};

// In the order of their numbers.
constexpr auto kNames = std::to_array<Names>({
    {DType::kBool, "bool", "BoolStorage"},
    {DType::kU8, "uint8", "ByteStorage"},
    {DType::kI8, "int8", "CharStorage"},
    {DType::kF8E5M2, "float8_e5m2", ""},
    {DType::kF8E4M3, "float8_e4m3fn", ""},
    {DType::kF8E8M0, "float8_e8m0fnu", ""},
    {DType::kI16, "int16", "ShortStorage"},
    {DType::kU16, "uint16", ""},
    {DType::kF16, "float16", "HalfStorage"},
    {DType::kBF16, "bfloat16", "BFloat16Storage"},
    {DType::kI32, "int32", "IntStorage"},
    {DType::kU32, "uint32", ""},
    {DType::kF32, "float32", "FloatStorage"},
    {DType::kC64, "complex64", "ComplexFloatStorage"},
    {DType::kF64, "float64", "DoubleStorage"},
    {DType::kI64, "int64", "LongStorage"},
    {DType::kU64, "uint64", ""},
});
static_assert(kNames.size() == ckpt::kNumDTypes);

const Names& NamesOf(DType dtype) { return kNames[static_cast<size_t>(dtype)]; }

}  // namespace

absl::string_view TorchName(DType dtype) { return NamesOf(dtype).name; }

std::optional<absl::string_view> TorchStorageClass(DType dtype) {
  const absl::string_view name = NamesOf(dtype).storage_class;
  return name.empty() ? std::nullopt : std::optional(name);
}

std::optional<DType> DTypeOfTorchName(absl::string_view name) {
  for (const Names& names : kNames) {
    if (names.name == name) return names.dtype;
  }
  return std::nullopt;
}

std::optional<DType> DTypeOfStorageClass(absl::string_view name) {
  for (const Names& names : kNames) {
    if (!name.empty() && names.storage_class == name) return names.dtype;
  }
  return std::nullopt;
}

absl::StatusOr<DType> AsTorchDType(const PickleValue& value) {
  const Pickle& pickle = value.pickle();
  if (value.kind() != PickleKind::kGlobal ||
      pickle.Module(value.id()) != "torch") {
    return value.Wrong("a dtype of torch");
  }
  const absl::string_view name = pickle.Name(value.id());
  if (const auto dtype = DTypeOfTorchName(name)) return *dtype;
  return absl::UnimplementedError(
      absl::StrCat(value.Where(), " is torch.", name,
                   ", which is no dtype that can be kept"));
}

}  // namespace shardshift::reshard
