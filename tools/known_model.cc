// SPDX-License-Identifier: Apache-2.0
#include "tools/known_model.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/hf_config.h"

namespace shardshift {

absl::StatusOr<KnownModel> ReadHfConfigFlag(const std::string& path) {
  std::string origin = absl::StrCat("--hf-config ", path);
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file) {
    return absl::InvalidArgumentError(absl::StrCat(
        origin, ": cannot read it; name the config.json of a model"));
  }
  absl::StatusOr<reshard::HfConfig> config = reshard::ParseHfConfig(text);
  if (!config.ok()) return Annotate(config.status(), origin);
  return KnownModel{.model = config->model, .origin = std::move(origin)};
}

absl::Status CheckSameModel(const KnownModel& a, const KnownModel& b) {
  const auto fields = [](reshard::ModelConfig model) {
    model.padded_vocab_size = model.vocab_size;
    return reshard::ToJson(model);
  };
  const nlohmann::json of_a = fields(a.model);
  const nlohmann::json of_b = fields(b.model);
  // A key that is not there has its default.
  const auto text = [](const nlohmann::json& object, const std::string& key) {
    const auto it = object.find(key);
    return it == object.end() ? "its default" : it->dump();
  };
  nlohmann::json keys = of_a;
  keys.update(of_b);
  for (const auto& [key, ignored] : keys.items()) {
    if (text(of_a, key) == text(of_b, key)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        a.origin, " has the model's ", key, " ", text(of_a, key), ", ",
        b.origin, " has ", text(of_b, key), "; name one of them, or the same"));
  }
  return absl::OkStatus();
}

}  // namespace shardshift
