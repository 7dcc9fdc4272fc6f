// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/hf_config.h"
#include "reshard/formats/hf_rope.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

void WriteGpt2(const ModelConfig& model, json& config) {
  config["n_layer"] = model.num_layers;
  config["n_embd"] = model.hidden_size;
  config["n_head"] = model.num_attention_heads;
  config["n_inner"] = model.ffn_hidden_size;
  config["n_positions"] = model.max_position_embeddings;
  config["layer_norm_epsilon"] = model.norm_epsilon;
  config["activation_function"] = model.exact_gelu ? "gelu" : "gelu_new";
}

void WriteWindow(const ModelConfig& model, HfFamily family, json& config) {
  if (family == HfFamily::kLlama) return;
  const bool has_window = model.sliding_window > 0;
  config["sliding_window"] =
      has_window ? json(model.sliding_window) : json(nullptr);
  if (family == HfFamily::kMistral || family == HfFamily::kMixtral) return;
  config["use_sliding_window"] = has_window;
  if (!has_window) return;
  config["max_window_layers"] = 0;
  config["layer_types"] =
      std::vector<std::string>(model.num_layers, "sliding_attention");
}

void WriteExperts(const ModelConfig& model, HfFamily family, json& config) {
  if (!model.has_experts()) return;
  config["num_experts_per_tok"] = model.moe_router_topk;
  if (family == HfFamily::kMixtral) {
    config["num_local_experts"] = model.num_experts;
    config["intermediate_size"] = model.moe_ffn_hidden_size;
    return;
  }
  config["num_experts"] = model.num_experts;
  config["moe_intermediate_size"] = model.moe_ffn_hidden_size;
  config["norm_topk_prob"] = !model.moe_router_pre_softmax;
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = model.dense_layers;
  if (family != HfFamily::kQwen2Moe) return;
  config["qkv_bias"] = model.add_qkv_bias;
  config["shared_expert_intermediate_size"] =
      model.moe_shared_expert_intermediate_size;
}

void WriteLlamaKind(const ModelConfig& model, HfFamily family, json& config) {
  config["num_hidden_layers"] = model.num_layers;
  config["hidden_size"] = model.hidden_size;
  config["intermediate_size"] = model.ffn_hidden_size;
  config["num_attention_heads"] = model.num_attention_heads;
  config["num_key_value_heads"] = model.num_query_groups;
  config["head_dim"] = model.kv_channels;
  config["max_position_embeddings"] = model.max_position_embeddings;
  config["rms_norm_eps"] = model.norm_epsilon;
  config["hidden_act"] = "silu";
  if (family == HfFamily::kLlama) {
    config["attention_bias"] = model.add_bias_linear;
    config["mlp_bias"] = model.add_bias_linear;
  }
  WriteHfRope(model, config);
  WriteWindow(model, family, config);
  WriteExperts(model, family, config);
}

// What decides the tensors and what is computed from them.
json Essence(ModelConfig model) {
  model.padded_vocab_size = model.vocab_size;
  if (!model.has_dense_layers()) {
    model.ffn_hidden_size = model.moe_ffn_hidden_size;
  }
  if (model.add_bias_linear) model.add_qkv_bias = false;
  if (model.position_embedding != PositionEmbedding::kRope) {
    model.rotary_base = ModelConfig().rotary_base;
  }
  return ToJson(model);
}

absl::Status CheckSame(const ModelConfig& model, const ModelConfig& read,
                       HfFamily family) {
  const json mine = Essence(model);
  const json others = Essence(read);
  // A key that is not there has its default.
  const auto text = [](const json& object, const std::string& key) {
    const auto it = object.find(key);
    return it == object.end() ? "its default" : it->dump();
  };
  json keys = mine;
  keys.update(others);
  for (const auto& [key, value] : keys.items()) {
    if (text(mine, key) == text(others, key)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("a ", ModelType(family), " model has ", key, " ",
                     text(others, key), ", this one ", text(mine, key)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<json> HfConfigFor(const ModelConfig& model, HfFamily family,
                                 absl::string_view dtype) {
  json config = {
      {"model_type", ModelType(family)},
      {"architectures", {Architecture(family)}},
      {"vocab_size", model.vocab_size},
      {"tie_word_embeddings", !model.untie_embeddings_and_output_weights}};
  if (!dtype.empty()) config["torch_dtype"] = dtype;
  if (family == HfFamily::kGpt2) {
    WriteGpt2(model, config);
  } else {
    WriteLlamaKind(model, family, config);
  }
  const auto read = HfConfigFromJson(config);
  if (!read.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this is no ", ModelType(family), " model: ", read.status().message()));
  }
  SS_RETURN_IF_ERROR(CheckSame(model, read->model, family));
  return config;
}

absl::StatusOr<HfFamily> FamilyFor(const ModelConfig& model) {
  std::vector<std::string> reasons;
  for (const HfFamily family : kHfFamilies) {
    const auto config = HfConfigFor(model, family, "");
    if (config.ok()) return family;
    reasons.emplace_back(config.status().message());
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the model has no Hugging Face form: ", absl::StrJoin(reasons, "; ")));
}

}  // namespace shardshift::reshard
