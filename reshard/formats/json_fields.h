// Fields of a JSON object that nobody has checked, by key.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_JSON_FIELDS_H_
#define SHARDSHIFT_RESHARD_FORMATS_JSON_FIELDS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace shardshift::reshard {

// The first failure sticks: status() tells it, and from then on values mean
// nothing. A null counts as absent unless Has() is asked before. Errors:
// InvalidArgument naming the key, what was expected and what was found.
class JsonFields {
 public:
  // Borrows `object`. Messages have `path` before keys, e.g. "rope_scaling.".
  explicit JsonFields(const nlohmann::json& object, std::string path = "")
      : object_(object), path_(std::move(path)) {}

  const nlohmann::json& object() const { return object_; }
  const absl::Status& status() const { return status_; }

  // Whether the key is there, null or not.
  bool Has(absl::string_view key) const;
  bool IsNull(absl::string_view key) const;
  // The value, or null.
  const nlohmann::json& Value(absl::string_view key) const;

  // Without `absent` the key must be there.
  // From 1 on, unless another minimum is given.
  int64_t Int(absl::string_view key,
              std::optional<int64_t> absent = std::nullopt, int64_t min = 1);
  // Finite and above zero.
  double Number(absl::string_view key,
                std::optional<double> absent = std::nullopt);
  bool Bool(absl::string_view key, bool absent);
  std::string Text(absl::string_view key, absl::string_view absent);

  // Keeps the first failure: that `key` has a value that is not `expected`, or
  // any other.
  void RefuseValue(absl::string_view key, absl::string_view expected);
  void Refuse(const absl::Status& status) { status_.Update(status); }

 private:
  bool IsAbsent(absl::string_view key, bool required);

  const nlohmann::json& object_;
  const std::string path_;
  absl::Status status_;
};

// A value for a message: cut if it is long.
std::string Excerpt(const nlohmann::json& value);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_JSON_FIELDS_H_
