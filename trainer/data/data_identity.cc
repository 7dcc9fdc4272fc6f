// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/data_identity.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace shardshift::trainer {

nlohmann::json DataIdentity(const TokenSource& source, DataOrder order,
                            uint64_t seed) {
  nlohmann::json identity = {{"order", std::string(DataOrderName(order))},
                             {"seq_length", source.seq_length()},
                             {"source", source.Identity()}};
  if (order == DataOrder::kShuffled) identity["seed"] = seed;
  return identity;
}

absl::Status CheckSameData(const nlohmann::json& stored,
                           const nlohmann::json& current) {
  if (stored == current) return absl::OkStatus();
  std::vector<std::string> differences;
  const auto value_at = [](const nlohmann::json& flat, const std::string& key) {
    return flat.contains(key) ? flat[key].dump() : "nothing";
  };
  const nlohmann::json before = stored.flatten();
  const nlohmann::json now = current.flatten();
  nlohmann::json keys = before;
  keys.update(now);
  for (const auto& [key, unused] : keys.items()) {
    if (value_at(before, key) == value_at(now, key)) continue;
    differences.push_back(absl::StrCat(key.substr(1), ": the checkpoint has ",
                                       value_at(before, key), ", this run ",
                                       value_at(now, key)));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "other data than the checkpoint's: ", absl::StrJoin(differences, "; "),
      "; give the same data, or start a new run without --load"));
}

}  // namespace shardshift::trainer
