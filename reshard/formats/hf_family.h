// The model families whose Hugging Face form is known.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_HF_FAMILY_H_
#define SHARDSHIFT_RESHARD_FORMATS_HF_FAMILY_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace shardshift::reshard {

enum class HfFamily : uint8_t {
  kGpt2,
  kLlama,
  kMistral,
  kQwen2,
  kQwen3,
  kMixtral,
  kQwen2Moe,
  kQwen3Moe,
};

inline constexpr std::array kHfFamilies = {
    HfFamily::kGpt2,     HfFamily::kLlama,   HfFamily::kMistral,
    HfFamily::kQwen2,    HfFamily::kQwen3,   HfFamily::kMixtral,
    HfFamily::kQwen2Moe, HfFamily::kQwen3Moe};

// config.json's `model_type`, e.g. "qwen2_moe", and the entry of
// `architectures` of the model with an output layer, e.g. "LlamaForCausalLM".
const char* ModelType(HfFamily family);
const char* Architecture(HfFamily family);

std::optional<HfFamily> FamilyOfModelType(absl::string_view model_type);
std::optional<HfFamily> FamilyOfArchitecture(absl::string_view architecture);

// "gpt2, llama, ..."
std::string KnownModelTypes();

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_HF_FAMILY_H_
