// Which JSON values are taken for a field of a type.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_LAYOUT_JSON_TYPES_H_
#define SHARDSHIFT_RESHARD_LAYOUT_JSON_TYPES_H_

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace shardshift::reshard {

inline bool HasType(const nlohmann::json& value, bool) {
  return value.is_boolean();
}
inline bool HasType(const nlohmann::json& value, int64_t) {
  return value.is_number_integer();
}
inline bool HasType(const nlohmann::json& value, double) {
  return value.is_number();
}
inline bool HasType(const nlohmann::json& value, const std::vector<int64_t>&) {
  return value.is_array() && std::all_of(value.begin(), value.end(),
                                         [](const nlohmann::json& element) {
                                           return element.is_number_integer();
                                         });
}

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_LAYOUT_JSON_TYPES_H_
