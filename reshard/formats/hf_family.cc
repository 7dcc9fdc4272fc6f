// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/hf_family.h"

#include "absl/strings/str_join.h"

namespace shardshift::reshard {

const char* ModelType(HfFamily family) {
  switch (family) {
    case HfFamily::kGpt2:
      return "gpt2";
    case HfFamily::kLlama:
      return "llama";
    case HfFamily::kMistral:
      return "mistral";
    case HfFamily::kQwen2:
      return "qwen2";
    case HfFamily::kQwen3:
      return "qwen3";
    case HfFamily::kMixtral:
      return "mixtral";
    case HfFamily::kQwen2Moe:
      return "qwen2_moe";
    case HfFamily::kQwen3Moe:
      break;
  }
  return "qwen3_moe";
}

const char* Architecture(HfFamily family) {
  switch (family) {
    case HfFamily::kGpt2:
      return "GPT2LMHeadModel";
    case HfFamily::kLlama:
      return "LlamaForCausalLM";
    case HfFamily::kMistral:
      return "MistralForCausalLM";
    case HfFamily::kQwen2:
      return "Qwen2ForCausalLM";
    case HfFamily::kQwen3:
      return "Qwen3ForCausalLM";
    case HfFamily::kMixtral:
      return "MixtralForCausalLM";
    case HfFamily::kQwen2Moe:
      return "Qwen2MoeForCausalLM";
    case HfFamily::kQwen3Moe:
      break;
  }
  return "Qwen3MoeForCausalLM";
}

std::optional<HfFamily> FamilyOfModelType(absl::string_view model_type) {
  for (const HfFamily family : kHfFamilies) {
    if (model_type == ModelType(family)) return family;
  }
  return std::nullopt;
}

std::optional<HfFamily> FamilyOfArchitecture(absl::string_view architecture) {
  for (const HfFamily family : kHfFamilies) {
    if (architecture == Architecture(family)) return family;
  }
  return std::nullopt;
}

std::string KnownModelTypes() {
  return absl::StrJoin(kHfFamilies, ", ",
                       [](std::string* text, HfFamily family) {
                         text->append(ModelType(family));
                       });
}

}  // namespace shardshift::reshard
