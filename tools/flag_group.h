// Declares flags that stay empty unless they are given, in a group of the help.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_FLAG_GROUP_H_
#define SHARDSHIFT_TOOLS_FLAG_GROUP_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace shardshift {

// Beyond these no flag goes.
inline constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
inline constexpr double kMaxNumber = 1e30;

class FlagGroup {
 public:
  // Of `app`, which outlives the flags' values.
  FlagGroup(CLI::App& app, const char* name) : app_(app), name_(name) {}

  void Int(const char* names, std::optional<int64_t>& value, int64_t min,
           const char* help);
  void Number(const char* names, std::optional<double>& value, double min,
              double max, const char* help);
  void Choice(const char* names, std::optional<std::string>& value,
              const std::vector<std::string>& choices, const char* help);
  void Switch(const char* names, std::optional<bool>& value, const char* help);

 private:
  CLI::App& app_;
  const char* name_;
};

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_FLAG_GROUP_H_
