// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/json_text.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

// Builds the value. Depth is checked before.
class StrictBuilder : public JsonHandler {
 public:
  json TakeValue() { return std::move(root_); }

  bool null() override { return Add(json()); }
  bool boolean(bool value) override { return Add(json(value)); }
  bool number_integer(int64_t value) override { return Add(json(value)); }
  bool number_unsigned(uint64_t value) override { return Add(json(value)); }
  bool number_float(double value, const std::string& /*text*/) override {
    return Add(json(value));
  }
  bool string(std::string& value) override {
    return Add(json(std::move(value)));
  }
  bool start_object(size_t /*size*/) override { return Open(json::object()); }
  bool key(std::string& value) override {
    if (open_.back()->contains(value)) {
      return Refuse(
          absl::StrCat("the key ", Quoted(value), " comes twice in an object"));
    }
    key_ = std::move(value);
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(size_t /*size*/) override { return Open(json::array()); }
  bool end_array() override { return Close(); }

 private:
  json& Place(json value) {
    if (open_.empty()) return root_ = std::move(value);
    json& parent = *open_.back();
    if (parent.is_object()) return parent[key_] = std::move(value);
    parent.push_back(std::move(value));
    return parent.back();
  }
  bool Add(json value) {
    Place(std::move(value));
    return true;
  }
  bool Open(json value) {
    open_.push_back(&Place(std::move(value)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  json root_;
  std::vector<json*> open_;
  std::string key_;
};

}  // namespace

absl::Status CheckJsonDepth(absl::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      in_string = !in_string;
    } else if (in_string) {
      if (c == '\\') ++i;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) {
        return absl::InvalidArgumentError(absl::StrCat(
            "JSON nests deeper than ", kMaxJsonDepth, " at byte ", i));
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return absl::OkStatus();
}

bool JsonHandler::binary(json::binary_t& /*value*/) { return false; }

bool JsonHandler::parse_error(size_t position, const std::string& last_token,
                              const json::exception& error) {
  constexpr int kNumberOutOfRange = 406;
  return Refuse(
      absl::StrCat(error.id == kNumberOutOfRange ? "a number is out of range"
                                                 : "no valid JSON",
                   " at byte ", position, ", near ", Quoted(last_token)));
}

bool JsonHandler::Refuse(absl::string_view problem) {
  status_ = absl::DataLossError(problem);
  return false;
}

absl::Status ReadJson(absl::string_view text, JsonHandler& handler) {
  if (const size_t nul = text.find('\0'); nul != absl::string_view::npos) {
    return absl::DataLossError(
        absl::StrCat("no valid JSON at byte ", nul, ": a NUL"));
  }
  json::sax_parse(text.begin(), text.end(), &handler);
  return handler.status();
}

absl::StatusOr<json> ParseStrictJson(absl::string_view text) {
  SS_RETURN_IF_ERROR(CheckJsonDepth(text));
  StrictBuilder builder;
  SS_RETURN_IF_ERROR(ReadJson(text, builder));
  return builder.TakeValue();
}

std::string Quoted(absl::string_view text) {
  constexpr size_t kMaxBytes = 100;
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kMaxBytes)),
                      text.size() > kMaxBytes ? "...\"" : "\"");
}

}  // namespace shardshift::reshard
