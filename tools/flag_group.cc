// SPDX-License-Identifier: Apache-2.0
#include "tools/flag_group.h"

#include "tools/cli.h"

namespace shardshift {

void FlagGroup::Int(const char* names, std::optional<int64_t>& value,
                    int64_t min, const char* help) {
  app_.add_option(names, value, help)
      ->check(IntIn(min, kMaxInt))
      ->type_name("N")
      ->group(name_);
}

void FlagGroup::Number(const char* names, std::optional<double>& value,
                       double min, double max, const char* help) {
  app_.add_option(names, value, help)
      ->check(NumberIn(min, max))
      ->type_name("X")
      ->group(name_);
}

void FlagGroup::Choice(const char* names, std::optional<std::string>& value,
                       const std::vector<std::string>& choices,
                       const char* help) {
  app_.add_option(names, value, help)
      ->check(CLI::IsMember(choices))
      ->type_name("NAME")
      ->group(name_);
}

void FlagGroup::Switch(const char* names, std::optional<bool>& value,
                       const char* help) {
  // Not add_flag: it would take `value` for a counter and set it to 0.
  const auto set = [&value](int64_t count) { value = count > 0; };
  app_.add_flag_function(names, set, help)
      ->check(CLI::IsMember({"true", "false"}).description(""))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->group(name_);
}

}  // namespace shardshift
