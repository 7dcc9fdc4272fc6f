// config.json of a Hugging Face model, and what a model is called there.
// Source: checkpoint-formats.md 6.1, and transformers 4.44 to 5.24.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_HF_CONFIG_H_
#define SHARDSHIFT_RESHARD_FORMATS_HF_CONFIG_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "reshard/formats/hf_family.h"
#include "reshard/layout/model_config.h"

namespace shardshift::reshard {

struct HfConfig {
  HfFamily family = HfFamily::kLlama;
  // Its padded vocabulary is the true one.
  ModelConfig model = {};
  std::string dtype = {};  // e.g. "bfloat16"; empty if it does not say
};

// What `text`, the contents of a config.json, says of the model, in the keys of
// transformers 4 or 5; absent keys mean what they mean there. Keys that do not
// decide what is computed are left alone.
// Errors, all naming the key (the file, the caller adds) and what was expected:
// DataLoss if it is no JSON; InvalidArgument for a value that is missing,
// mistyped or out of range, or whatever Validate says; Unimplemented for
// another family or kind of model, or for a fact that a ModelConfig cannot
// state. They suggest `--generic`, which takes tensors as they are, where it
// helps.
absl::StatusOr<HfConfig> ParseHfConfig(absl::string_view text);
absl::StatusOr<HfConfig> HfConfigFromJson(const nlohmann::json& object);

// A config.json for the model, in keys that both versions understand. `dtype`
// may be empty. Reading it gives the same model but for the padding of the
// vocabulary.
// Errors: FailedPrecondition naming what a model of the family has not.
// REQUIRES: Validate(model) is OK.
absl::StatusOr<nlohmann::json> HfConfigFor(const ModelConfig& model,
                                           HfFamily family,
                                           absl::string_view dtype);

// The first family, in the order of kHfFamilies, that has such a model.
// Errors: FailedPrecondition telling what stands in the way in each.
// REQUIRES: Validate(model) is OK.
absl::StatusOr<HfFamily> FamilyFor(const ModelConfig& model);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_HF_CONFIG_H_
