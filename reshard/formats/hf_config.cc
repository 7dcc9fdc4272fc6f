// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/hf_config.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/hf_rope.h"
#include "reshard/formats/json_fields.h"
#include "reshard/layout/json_text.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

constexpr char kUseGeneric[] =
    "; `reshard --generic` takes the tensors as they are, whatever the model";

// What an absent key means.
struct Defaults {
  int64_t key_value_heads;  // 0: as many as heads
  int64_t positions;
  int64_t experts_per_token;
  double theta;
  double epsilon;
};

Defaults DefaultsOf(HfFamily family) {
  switch (family) {
    case HfFamily::kGpt2:
      return {0, 1024, 0, 1e4, 1e-5};
    case HfFamily::kLlama:
      return {0, 2048, 0, 1e4, 1e-6};
    case HfFamily::kMistral:
      return {8, 131072, 0, 1e4, 1e-6};
    case HfFamily::kQwen2:
    case HfFamily::kQwen3:
      return {32, 32768, 0, 1e4, 1e-6};
    case HfFamily::kMixtral:
      return {8, 131072, 2, 1e6, 1e-5};
    case HfFamily::kQwen2Moe:
      return {16, 32768, 4, 1e4, 1e-6};
    case HfFamily::kQwen3Moe:
      break;
  }
  return {4, 32768, 8, 1e4, 1e-6};
}

bool IsQwen(HfFamily family) {
  return family == HfFamily::kQwen2 || family == HfFamily::kQwen3 ||
         family == HfFamily::kQwen2Moe || family == HfFamily::kQwen3Moe;
}

absl::Status NotSupported(absl::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat(what, ", which is not supported", kUseGeneric));
}

absl::Status UnknownFamily(absl::string_view key, const json& value) {
  return absl::UnimplementedError(absl::StrCat(
      "the key \"", key, "\" is ", Excerpt(value), ", supported are ",
      KnownModelTypes(), " with an output layer (e.g. ",
      Architecture(HfFamily::kLlama), ")", kUseGeneric));
}

absl::StatusOr<HfFamily> ReadFamily(const JsonFields& fields) {
  std::optional<HfFamily> family;
  if (const json& type = fields.Value("model_type"); !type.is_null()) {
    if (type.is_string()) {
      family = FamilyOfModelType(type.get_ref<const std::string&>());
    }
    if (!family.has_value()) return UnknownFamily("model_type", type);
  }
  const json& architectures = fields.Value("architectures");
  if (!architectures.is_null() && architectures != json::array()) {
    const json& first =
        architectures.is_array() ? architectures.front() : architectures;
    std::optional<HfFamily> named;
    if (first.is_string()) {
      named = FamilyOfArchitecture(first.get_ref<const std::string&>());
    }
    if (!named.has_value() || named != family.value_or(*named)) {
      return UnknownFamily("architectures", architectures);
    }
    family = named;
  }
  if (family.has_value()) return *family;
  return UnknownFamily("model_type", json());
}

void RefuseIf(bool refuse, JsonFields& fields, absl::string_view what) {
  if (refuse) fields.Refuse(NotSupported(what));
}

// Two names of one field.
int64_t AliasedInt(JsonFields& fields, const char* key, const char* alias) {
  if (fields.IsNull(key)) key = std::exchange(alias, key);
  const int64_t value = fields.Int(key);
  if (!fields.IsNull(alias) && fields.Int(alias) != value) {
    fields.RefuseValue(alias,
                       absl::StrCat("the value of \"", key, "\", ", value));
  }
  return value;
}

void ReadGpt2(JsonFields& fields, ModelConfig& model) {
  const Defaults defaults = DefaultsOf(HfFamily::kGpt2);
  model.num_layers = AliasedInt(fields, "n_layer", "num_hidden_layers");
  model.hidden_size = AliasedInt(fields, "n_embd", "hidden_size");
  model.num_attention_heads =
      AliasedInt(fields, "n_head", "num_attention_heads");
  model.num_query_groups = model.num_attention_heads;
  model.ffn_hidden_size = fields.Int("n_inner", 4 * model.hidden_size);
  model.max_position_embeddings = fields.Int("n_positions", defaults.positions);
  model.norm_epsilon = fields.Number("layer_norm_epsilon", defaults.epsilon);
  if (model.hidden_size % model.num_attention_heads != 0) {
    fields.RefuseValue("n_embd", absl::StrCat("a multiple of \"n_head\", ",
                                              model.num_attention_heads));
  }
  model.kv_channels = model.hidden_size / model.num_attention_heads;

  const std::string activation = fields.Text("activation_function", "gelu_new");
  model.exact_gelu = activation == "gelu";
  if (!model.exact_gelu && activation != "gelu_new" &&
      activation != "gelu_pytorch_tanh" && activation != "gelu_fast") {
    fields.RefuseValue("activation_function", "gelu_new or gelu");
  }
  RefuseIf(!fields.Bool("scale_attn_weights", true), fields,
           "\"scale_attn_weights\" is false");
  RefuseIf(fields.Bool("scale_attn_by_inverse_layer_idx", false), fields,
           "\"scale_attn_by_inverse_layer_idx\" is true");
  RefuseIf(fields.Bool("add_cross_attention", false), fields,
           "\"add_cross_attention\" is true");
}

void ReadHeads(JsonFields& fields, HfFamily family, ModelConfig& model) {
  model.num_attention_heads = fields.Int("num_attention_heads");
  const int64_t heads = model.num_attention_heads;
  const int64_t groups = DefaultsOf(family).key_value_heads;
  const bool as_heads = groups == 0 || fields.Has("num_key_value_heads");
  model.num_query_groups =
      fields.Int("num_key_value_heads", as_heads ? heads : groups);
  if (heads % model.num_query_groups != 0) {
    fields.RefuseValue(
        "num_key_value_heads",
        absl::StrCat("a divisor of \"num_attention_heads\", ", heads));
  }
  // Of an absent width Qwen3 has an opinion of its own.
  if (family == HfFamily::kQwen3 && !fields.Has("head_dim")) {
    model.kv_channels = 128;
    return;
  }
  if (fields.IsNull("head_dim") && model.hidden_size % heads != 0) {
    fields.RefuseValue(
        "hidden_size",
        absl::StrCat("a multiple of \"num_attention_heads\", ", heads,
                     ", where \"head_dim\" is not given"));
  }
  model.kv_channels =
      fields.Int("head_dim", std::max<int64_t>(model.hidden_size / heads, 1));
}

void ReadBiases(JsonFields& fields, HfFamily family, ModelConfig& model) {
  switch (family) {
    case HfFamily::kLlama: {
      const bool attention = fields.Bool("attention_bias", false);
      model.add_bias_linear = fields.Bool("mlp_bias", false);
      RefuseIf(attention != model.add_bias_linear, fields,
               "only one of \"attention_bias\" and \"mlp_bias\" is true");
      return;
    }
    case HfFamily::kQwen2:
      model.add_qkv_bias = true;
      return;
    case HfFamily::kQwen2Moe:
      model.add_qkv_bias = fields.Bool("qkv_bias", true);
      return;
    case HfFamily::kQwen3:
    case HfFamily::kQwen3Moe:
      model.qk_layernorm = true;
      RefuseIf(fields.Bool("attention_bias", false), fields,
               "\"attention_bias\" is true");
      return;
    default:
      return;
  }
}

// How many layers of a Qwen model have the window.
int64_t NumWindowLayers(JsonFields& fields, HfFamily family,
                        int64_t num_layers) {
  if (family == HfFamily::kQwen3Moe) return num_layers;
  const json& types = fields.Value("layer_types");
  if (types.is_array()) {
    const auto num_sliding =
        std::count(types.begin(), types.end(), "sliding_attention");
    const auto num_full =
        std::count(types.begin(), types.end(), "full_attention");
    if (std::ssize(types) != num_layers ||
        num_sliding + num_full != num_layers) {
      fields.RefuseValue(
          "layer_types",
          absl::StrCat("sliding_attention or full_attention for each of ",
                       num_layers, " layers"));
    }
    return num_sliding;
  }
  const int64_t first = fields.Int("max_window_layers", 28, /*min=*/0);
  if (family != HfFamily::kQwen2Moe) {
    return std::max<int64_t>(num_layers - first, 0);
  }
  // Every second one of the first layers.
  return (std::min(num_layers, first) + 1) / 2;
}

void ReadWindow(JsonFields& fields, HfFamily family, ModelConfig& model) {
  if (family == HfFamily::kLlama) return;
  if (IsQwen(family) && !fields.Bool("use_sliding_window", false)) return;
  const bool has_default =
      family != HfFamily::kMixtral && !fields.Has("sliding_window");
  model.sliding_window =
      fields.Int("sliding_window", has_default ? 4096 : 0, /*min=*/0);
  if (!IsQwen(family) || model.sliding_window == 0) return;
  const int64_t layers = NumWindowLayers(fields, family, model.num_layers);
  RefuseIf(layers > 0 && layers < model.num_layers, fields,
           absl::StrCat("\"sliding_window\" ", model.sliding_window, " is for ",
                        layers, " of ", model.num_layers, " layers"));
  if (layers == 0) model.sliding_window = 0;
}

// Layers have experts from each step-th on, but for those that are named.
std::vector<int64_t> ReadDenseLayers(JsonFields& fields, int64_t num_layers) {
  const int64_t step = fields.Int("decoder_sparse_step", 1, /*min=*/1);
  const json& named = fields.Value("mlp_only_layers");
  std::set<int64_t> dense;
  for (int64_t layer = 0; layer < std::min(num_layers, kMaxLayers); ++layer) {
    if ((layer + 1) % step != 0) dense.insert(layer);
  }
  if (named.is_null()) return {dense.begin(), dense.end()};
  const auto is_layer = [num_layers](const json& layer) {
    return layer.is_number_integer() && layer >= 0 && layer < num_layers;
  };
  const bool is_list = named.is_array() && std::ranges::all_of(named, is_layer);
  RefuseIf(!is_list, fields,
           absl::StrCat("\"mlp_only_layers\" is ", Excerpt(named),
                        ", expected a list of layers 0 to ", num_layers - 1));
  if (is_list) {
    for (const json& layer : named) dense.insert(layer.get<int64_t>());
  }
  return {dense.begin(), dense.end()};
}

void ReadQwenExperts(JsonFields& fields, HfFamily family, ModelConfig& model) {
  model.num_experts = AliasedInt(fields, "num_experts", "num_local_experts");
  model.moe_ffn_hidden_size = fields.Int("moe_intermediate_size");
  model.moe_router_pre_softmax = !fields.Bool("norm_topk_prob", false);
  if (family == HfFamily::kQwen2Moe) {
    model.moe_shared_expert_intermediate_size =
        fields.Int("shared_expert_intermediate_size");
    model.moe_shared_expert_gate = true;
  }
  model.dense_layers = ReadDenseLayers(fields, model.num_layers);
}

void ReadExperts(JsonFields& fields, HfFamily family, ModelConfig& model) {
  switch (family) {
    case HfFamily::kMixtral:
      model.num_experts =
          AliasedInt(fields, "num_local_experts", "num_experts");
      model.moe_ffn_hidden_size = model.ffn_hidden_size;
      break;
    case HfFamily::kQwen2Moe:
    case HfFamily::kQwen3Moe:
      ReadQwenExperts(fields, family, model);
      break;
    default:
      return;
  }
  model.moe_router_topk =
      fields.Int("num_experts_per_tok", DefaultsOf(family).experts_per_token);
  if (model.moe_router_topk > model.num_experts) {
    fields.RefuseValue(
        "num_experts_per_tok",
        absl::StrCat("at most the experts there are, ", model.num_experts));
  }
}

void ReadLlamaKind(JsonFields& fields, HfFamily family, ModelConfig& model) {
  const Defaults defaults = DefaultsOf(family);
  model.normalization = Normalization::kRmsNorm;
  model.position_embedding = PositionEmbedding::kRope;
  model.swiglu = true;
  model.add_bias_linear = false;
  model.num_layers = fields.Int("num_hidden_layers");
  model.hidden_size = fields.Int("hidden_size");
  model.ffn_hidden_size = fields.Int("intermediate_size");
  model.max_position_embeddings =
      fields.Int("max_position_embeddings", defaults.positions);
  model.norm_epsilon = fields.Number("rms_norm_eps", defaults.epsilon);
  const std::string activation = fields.Text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    fields.RefuseValue("hidden_act", "silu");
  }
  ReadHeads(fields, family, model);
  ReadBiases(fields, family, model);
  ReadWindow(fields, family, model);
  ReadHfRope(fields, defaults.theta, model);
  ReadExperts(fields, family, model);
}

}  // namespace

absl::StatusOr<HfConfig> HfConfigFromJson(const json& object) {
  if (!object.is_object()) {
    return absl::InvalidArgumentError("it is no JSON object");
  }
  JsonFields fields(object);
  HfConfig config;
  SS_ASSIGN_OR_RETURN(config.family, ReadFamily(fields));
  RefuseIf(!fields.IsNull("quantization_config"), fields,
           "the key \"quantization_config\" says that weights are quantized");
  ModelConfig& model = config.model;
  const bool is_gpt2 = config.family == HfFamily::kGpt2;
  if (is_gpt2) {
    ReadGpt2(fields, model);
  } else {
    ReadLlamaKind(fields, config.family, model);
  }
  model.vocab_size = fields.Int("vocab_size");
  model.padded_vocab_size = model.vocab_size;
  model.untie_embeddings_and_output_weights =
      !fields.Bool("tie_word_embeddings", is_gpt2);
  config.dtype = fields.Text("dtype", fields.Text("torch_dtype", ""));
  SS_RETURN_IF_ERROR(fields.status());
  SS_RETURN_IF_ERROR(Validate(model));
  return config;
}

absl::StatusOr<HfConfig> ParseHfConfig(absl::string_view text) {
  SS_ASSIGN_OR_RETURN(const json object, ParseStrictJson(text));
  return HfConfigFromJson(object);
}

}  // namespace shardshift::reshard
