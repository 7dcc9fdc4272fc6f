// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/pickle_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/torch_dtype.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 64;
constexpr int64_t kMaxValues = int64_t{1} << 20;

class Encoder {
 public:
  absl::StatusOr<json> Encode(const PickleValue& value, int depth) {
    if (depth > kMaxDepth || ++num_values_ > kMaxValues) {
      return absl::ResourceExhaustedError(
          absl::StrCat(value.Where(), ": more than ", kMaxValues,
                       " values, or ", kMaxDepth, " one in the other"));
    }
    switch (value.kind()) {
      case PickleKind::kNone:
        return json();
      case PickleKind::kBool:
        return json(*value.AsBool());
      case PickleKind::kInt:
        return json(*value.AsInt());
      case PickleKind::kFloat:
        return Float(*value.AsDouble());
      case PickleKind::kString:
        return json(std::string(*value.AsString()));
      case PickleKind::kBytes:
        return Bytes(value);
      case PickleKind::kTuple:
        return Items(value, "tuple", depth);
      case PickleKind::kSet:
        return Items(value, "set", depth);
      case PickleKind::kList: {
        SS_ASSIGN_OR_RETURN(const auto items, value.AsList());
        return List(items, depth);
      }
      case PickleKind::kDict:
        return Dict(value, depth);
      case PickleKind::kGlobal:
        return json{{"py", "global"}, {"name", NameOf(value.id(), value)}};
      case PickleKind::kObject:
        return Object(value, depth);
      case PickleKind::kBigInt:
      case PickleKind::kPersistentId:
        break;
    }
    return absl::UnimplementedError(absl::StrCat(
        value.Where(), " is ", Describe(value.kind()), ", which is not kept"));
  }

 private:
  static json Float(double number) {
    if (std::isfinite(number)) return json(number);
    const char* name =
        std::isnan(number) ? "nan" : (number > 0 ? "inf" : "-inf");
    return {{"py", "float"}, {"value", name}};
  }

  static absl::StatusOr<json> Bytes(const PickleValue& value) {
    SS_ASSIGN_OR_RETURN(const std::string bytes, value.AsBytes());
    return json{{"py", "bytes"}, {"base64", absl::Base64Escape(bytes)}};
  }

  static std::string NameOf(Pickle::Id global, const PickleValue& value) {
    return absl::StrCat(value.pickle().Module(global), " ",
                        value.pickle().Name(global));
  }

  absl::StatusOr<json> List(const std::vector<PickleValue>& items, int depth) {
    json list = json::array();
    for (const PickleValue& item : items) {
      SS_ASSIGN_OR_RETURN(json encoded, Encode(item, depth + 1));
      list.push_back(std::move(encoded));
    }
    return list;
  }

  absl::StatusOr<json> Items(const PickleValue& value, const char* kind,
                             int depth) {
    SS_ASSIGN_OR_RETURN(const auto items, value.AsList());
    SS_ASSIGN_OR_RETURN(json list, List(items, depth));
    return json{{"py", kind}, {"items", std::move(list)}};
  }

  absl::StatusOr<json> Pairs(const std::vector<PickleValue::Entry>& entries,
                             int depth) {
    json pairs = json::array();
    for (const auto& [key, value] : entries) {
      SS_ASSIGN_OR_RETURN(json first, Encode(key, depth + 1));
      SS_ASSIGN_OR_RETURN(json second, Encode(value, depth + 1));
      pairs.push_back({std::move(first), std::move(second)});
    }
    return pairs;
  }

  absl::StatusOr<json> Dict(const PickleValue& value, int depth) {
    SS_ASSIGN_OR_RETURN(const auto entries, value.AsEntries());
    json object = json::object();
    bool is_plain = true;
    for (const auto& [key, item] : entries) {
      is_plain = is_plain && key.kind() == PickleKind::kString &&
                 *key.AsString() != "py";
    }
    if (!is_plain) {
      SS_ASSIGN_OR_RETURN(json pairs, Pairs(entries, depth));
      return json{{"py", "dict"}, {"items", std::move(pairs)}};
    }
    for (const auto& [key, item] : entries) {
      SS_ASSIGN_OR_RETURN(object[std::string(*key.AsString())],
                          Encode(item, depth + 1));
    }
    return object;
  }

  absl::StatusOr<json> Object(const PickleValue& value, int depth) {
    const Pickle& pickle = value.pickle();
    if (value.IsObjectOf("_codecs", "encode")) return Bytes(value);
    if (pickle.Kwargs(value.id()).has_value()) {
      return value.Error("has keyword arguments, which are not kept");
    }
    json object = {{"py", "call"},
                   {"name", NameOf(pickle.Callable(value.id()), value)}};
    SS_ASSIGN_OR_RETURN(const auto args, value.Args().AsList());
    SS_ASSIGN_OR_RETURN(object["args"], List(args, depth));
    if (pickle.State(value.id()).has_value()) {
      SS_ASSIGN_OR_RETURN(const PickleValue state, value.State());
      SS_ASSIGN_OR_RETURN(object["state"], Encode(state, depth + 1));
    }
    if (pickle.Items(value.id()).empty()) return object;
    if (!pickle.HasPairs(value.id())) {
      return value.Error("was appended to, which is not kept");
    }
    SS_ASSIGN_OR_RETURN(const auto entries, value.AsEntries());
    SS_ASSIGN_OR_RETURN(object["items"], Pairs(entries, depth));
    return object;
  }

  int64_t num_values_ = 0;
};

absl::StatusOr<PyValue> Decode(const json& value, int depth);

absl::Status Malformed(const json& value) {
  return absl::DataLossError(absl::StrCat(
      value.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 200),
      " is no value of a pickle as a checkpoint's state has it"));
}

absl::StatusOr<PyValue::Items> DecodeItems(const json& list, int depth) {
  if (!list.is_array()) return Malformed(list);
  PyValue::Items items;
  for (const json& item : list) {
    SS_ASSIGN_OR_RETURN(PyValue decoded, Decode(item, depth + 1));
    items.push_back(std::move(decoded));
  }
  return items;
}

absl::StatusOr<PyValue::Entries> DecodePairs(const json& list, int depth) {
  if (!list.is_array()) return Malformed(list);
  PyValue::Entries entries;
  for (const json& pair : list) {
    if (!pair.is_array() || pair.size() != 2) return Malformed(pair);
    SS_ASSIGN_OR_RETURN(PyValue key, Decode(pair[0], depth + 1));
    SS_ASSIGN_OR_RETURN(PyValue value, Decode(pair[1], depth + 1));
    entries.emplace_back(std::move(key), std::move(value));
  }
  return entries;
}

using ModuleAndName = std::pair<std::string, std::string>;

// What makes nothing but values, whatever its arguments.
bool IsHarmless(absl::string_view module, absl::string_view name) {
  using Global = std::pair<absl::string_view, absl::string_view>;
  static constexpr auto kHarmless =
      std::to_array<Global>({{"argparse", "Namespace"},
                             {"builtins", "bytearray"},
                             {"builtins", "complex"},
                             {"builtins", "set"},
                             {"collections", "OrderedDict"},
                             {"datetime", "timedelta"},
                             {"pathlib", "PosixPath"},
                             {"signal", "Signals"},
                             {"torch", "Size"},
                             {"torch", "device"},
                             {"types", "SimpleNamespace"}});
  if (std::find(kHarmless.begin(), kHarmless.end(), Global(module, name)) !=
      kHarmless.end()) {
    return true;
  }
  const bool is_enum = absl::StartsWith(module, "megatron.") &&
                       absl::EndsWith(module, ".enums") &&
                       name.find('.') == absl::string_view::npos;
  return is_enum || (module == "torch" && DTypeOfTorchName(name).has_value());
}

absl::StatusOr<ModuleAndName> DecodeGlobal(const json& value) {
  const auto name = value.find("name");
  if (name == value.end() || !name->is_string()) return Malformed(value);
  const ModuleAndName global = absl::StrSplit(
      name->get_ref<const std::string&>(), absl::MaxSplits(' ', 1));
  const auto& [module, symbol] = global;
  // Both are lines of the pickle.
  if (absl::StrContains(module, '\n') || !IsHarmless(module, symbol)) {
    return absl::PermissionDeniedError(
        absl::StrCat("the state names ", module, ".", symbol,
                     ", which whoever loads it would call; it is not written"));
  }
  // As protocol 2 calls it.
  if (module == "builtins") return ModuleAndName("__builtin__", symbol);
  return global;
}

absl::StatusOr<PyValue> DecodeCall(const json& value, int depth) {
  SS_ASSIGN_OR_RETURN(const ModuleAndName global, DecodeGlobal(value));
  if (!value.contains("args")) return Malformed(value);
  SS_ASSIGN_OR_RETURN(PyValue::Items args, DecodeItems(value["args"], depth));
  PyValue result = PyValue::Call(global.first, global.second, std::move(args));
  if (value.contains("state")) {
    SS_ASSIGN_OR_RETURN(PyValue state, Decode(value["state"], depth + 1));
    result = PyValue::WithState(std::move(result), std::move(state));
  }
  if (value.contains("items")) {
    SS_ASSIGN_OR_RETURN(PyValue::Entries entries,
                        DecodePairs(value["items"], depth));
    result = PyValue::WithEntries(std::move(result), std::move(entries));
  }
  return result;
}

absl::StatusOr<PyValue> DecodeFloat(const json& value) {
  using Limits = std::numeric_limits<double>;
  const std::string name = value.value("value", "");
  if (name == "inf") return PyValue::Float(Limits::infinity());
  if (name == "-inf") return PyValue::Float(-Limits::infinity());
  if (name == "nan") return PyValue::Float(Limits::quiet_NaN());
  return Malformed(value);
}

// An object with the key "py".
absl::StatusOr<PyValue> DecodeSpecial(const json& value, int depth) {
  if (!value["py"].is_string()) return Malformed(value);
  const std::string kind = value["py"].get<std::string>();
  const json items = value.value("items", json());
  if (kind == "tuple" || kind == "set") {
    SS_ASSIGN_OR_RETURN(PyValue::Items decoded, DecodeItems(items, depth));
    if (kind == "tuple") return PyValue::Tuple(std::move(decoded));
    return PyValue::Call("__builtin__", "set",
                         {PyValue::List(std::move(decoded))});
  }
  if (kind == "dict") {
    SS_ASSIGN_OR_RETURN(PyValue::Entries entries, DecodePairs(items, depth));
    return PyValue::Dict(std::move(entries));
  }
  if (kind == "global") {
    SS_ASSIGN_OR_RETURN(const ModuleAndName global, DecodeGlobal(value));
    return PyValue::Global(global.first, global.second);
  }
  if (kind == "call") return DecodeCall(value, depth);
  if (kind == "float") return DecodeFloat(value);
  std::string bytes;
  const json base64 = value.value("base64", json());
  if (kind == "bytes" && base64.is_string() &&
      absl::Base64Unescape(base64.get<std::string>(), &bytes)) {
    return PyValue::Bytes(bytes);
  }
  return Malformed(value);
}

absl::StatusOr<PyValue> DecodeNumber(const json& value) {
  if (value.is_number_float()) return PyValue::Float(value.get<double>());
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > std::numeric_limits<int64_t>::max()) {
    return Malformed(value);
  }
  return PyValue::Int(value.get<int64_t>());
}

absl::StatusOr<PyValue> Decode(const json& value, int depth) {
  if (depth > kMaxDepth) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the state has a pickle of more than ", kMaxDepth,
                     " values one in the other"));
  }
  if (value.is_null()) return PyValue();
  if (value.is_boolean()) return PyValue::Bool(value.get<bool>());
  if (value.is_number()) return DecodeNumber(value);
  if (value.is_string()) return PyValue::Str(value.get<std::string>());
  if (value.is_array()) {
    SS_ASSIGN_OR_RETURN(PyValue::Items items, DecodeItems(value, depth));
    return PyValue::List(std::move(items));
  }
  if (value.contains("py")) return DecodeSpecial(value, depth);
  PyValue::Attributes attributes;
  for (const auto& [key, item] : value.items()) {
    SS_ASSIGN_OR_RETURN(PyValue decoded, Decode(item, depth + 1));
    attributes.emplace_back(key, std::move(decoded));
  }
  return PyValue::Dict(std::move(attributes));
}

}  // namespace

absl::StatusOr<json> PickleToJson(const PickleValue& value) {
  return Encoder().Encode(value, 0);
}

absl::StatusOr<PyValue> PickleFromJson(const json& json) {
  return Decode(json, 0);
}

}  // namespace shardshift::reshard
