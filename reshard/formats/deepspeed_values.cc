// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/deepspeed_values.h"

#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

constexpr int64_t kMaxStepBytes = 4096;
// Lists of more numbers than betas and the like have are no settings.
constexpr size_t kMaxListSize = 1024;

std::optional<json> ScalarOf(const PickleValue& value) {
  switch (value.kind()) {
    case PickleKind::kBool:
      return json(*value.AsBool());
    case PickleKind::kInt:
      return json(*value.AsInt());
    case PickleKind::kFloat:
      return json(*value.AsDouble());
    case PickleKind::kString:
      return json(std::string(*value.AsString()));
    default:
      return std::nullopt;
  }
}

std::optional<json> SettingOf(const PickleValue& value) {
  if (value.kind() != PickleKind::kTuple && value.kind() != PickleKind::kList) {
    return ScalarOf(value);
  }
  const size_t size = value.num_children();
  if (size > kMaxListSize) return std::nullopt;
  json list = json::array();
  for (size_t i = 0; i < size; ++i) {
    std::optional<json> item = ScalarOf(value.Child(i));
    if (!item.has_value()) return std::nullopt;
    list.push_back(*std::move(item));
  }
  return list;
}

}  // namespace

absl::StatusOr<json> ScalarsOf(const PickleValue& value) {
  SS_ASSIGN_OR_RETURN(
      const std::vector<PickleValue::Entry> entries,
      value.IsMapping() ? value.AsEntries() : value.Attributes());
  json scalars = json::object();
  for (const auto& [key, item] : entries) {
    if (key.kind() != PickleKind::kString) continue;
    std::optional<json> setting = SettingOf(item);
    if (setting.has_value()) {
      scalars[std::string(*key.AsString())] = *std::move(setting);
    }
  }
  return scalars;
}

absl::StatusOr<double> ReadStep(const OpenedTorch& source,
                                const PickleValue& step) {
  if (!TorchFile::IsTensor(step)) {
    const absl::StatusOr<double> number = step.AsDouble();
    if (number.ok()) return *number;
    return Annotate(number.status(), source.torch.path());
  }
  SS_ASSIGN_OR_RETURN(const TorchTensor tensor, source.torch.Tensor(step));
  if (ckpt::CheckedNumElements(tensor.shape).value_or(0) != 1 ||
      tensor.dtype == ckpt::DType::kC64) {
    return absl::DataLossError(absl::StrCat(
        source.torch.path(), ": ", step.Where(), " is ",
        ckpt::Name(tensor.dtype), " ", ckpt::ToString(tensor.shape),
        ", expected a tensor of one number"));
  }
  SS_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                      ReadTensor(source.file, tensor, kMaxStepBytes));
  return ckpt::ToDouble(tensor.dtype, bytes.data());
}

json NumberOf(double value) {
  constexpr double kMaxExact = 9007199254740992.0;  // 2^53
  if (std::abs(value) <= kMaxExact && value == std::trunc(value)) {
    return static_cast<int64_t>(value);
  }
  return value;
}

json StepsOf(const std::set<double>& steps) {
  if (steps.empty()) return nullptr;
  if (steps.size() == 1) return NumberOf(*steps.begin());
  json list = json::array();
  for (const double step : steps) list.push_back(NumberOf(step));
  return list;
}

}  // namespace shardshift::reshard
