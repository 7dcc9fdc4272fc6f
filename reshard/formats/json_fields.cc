// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/json_fields.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "reshard/layout/json_text.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

// What any extent of a model may be at most.
constexpr int64_t kMaxInt = int64_t{1} << 31;

}  // namespace

std::string Excerpt(const json& value) {
  constexpr size_t kMaxBytes = 100;
  if (value.is_string()) return Quoted(value.get_ref<const std::string&>());
  if (value.is_structured() && value.size() > kMaxBytes) {
    return absl::StrCat("an ", value.type_name(), " of ", value.size());
  }
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() <= kMaxBytes) return text;
  return absl::StrCat(text.substr(0, kMaxBytes), "...");
}

bool JsonFields::Has(absl::string_view key) const {
  return object_.contains(std::string(key));
}

const json& JsonFields::Value(absl::string_view key) const {
  static const json& null = *new json();
  const auto it = object_.find(std::string(key));
  return it == object_.end() ? null : *it;
}

bool JsonFields::IsNull(absl::string_view key) const {
  return Value(key).is_null();
}

bool JsonFields::IsAbsent(absl::string_view key, bool required) {
  if (!IsNull(key)) return false;
  if (required) {
    status_.Update(absl::InvalidArgumentError(absl::StrCat(
        "the key ", Quoted(absl::StrCat(path_, key)), " is missing")));
  }
  return true;
}

int64_t JsonFields::Int(absl::string_view key, std::optional<int64_t> absent,
                        int64_t min) {
  if (IsAbsent(key, !absent.has_value())) return absent.value_or(min);
  const json& value = Value(key);
  // A number beyond int64_t is unsigned, and would wrap.
  if (value.is_number_integer() &&
      !(value.is_number_unsigned() && value.get<uint64_t>() > kMaxInt) &&
      value.get<int64_t>() >= min && value.get<int64_t>() <= kMaxInt) {
    return value.get<int64_t>();
  }
  RefuseValue(key, absl::StrCat("a whole number from ", min, " to ", kMaxInt));
  return min;
}

double JsonFields::Number(absl::string_view key, std::optional<double> absent) {
  if (IsAbsent(key, !absent.has_value())) return absent.value_or(1);
  const json& value = Value(key);
  if (value.is_number() && std::isfinite(value.get<double>()) &&
      value.get<double>() > 0) {
    return value.get<double>();
  }
  RefuseValue(key, "a number above 0");
  return 1;
}

bool JsonFields::Bool(absl::string_view key, bool absent) {
  if (IsAbsent(key, /*required=*/false)) return absent;
  const json& value = Value(key);
  if (value.is_boolean()) return value.get<bool>();
  RefuseValue(key, "true or false");
  return absent;
}

std::string JsonFields::Text(absl::string_view key, absl::string_view absent) {
  if (IsAbsent(key, /*required=*/false)) return std::string(absent);
  const json& value = Value(key);
  if (value.is_string()) return value.get<std::string>();
  RefuseValue(key, "a string");
  return std::string(absent);
}

void JsonFields::RefuseValue(absl::string_view key,
                             absl::string_view expected) {
  status_.Update(absl::InvalidArgumentError(
      absl::StrCat("the key ", Quoted(absl::StrCat(path_, key)), " is ",
                   Excerpt(Value(key)), ", expected ", expected)));
}

}  // namespace shardshift::reshard
