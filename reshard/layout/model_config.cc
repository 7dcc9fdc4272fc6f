// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/model_config.h"

#include <cmath>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/status_macros.h"
#include "reshard/layout/json_text.h"
#include "reshard/layout/json_types.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

constexpr int64_t kMaxExtent = int64_t{1} << 31;
// Keeps every count of elements or bytes within int64_t.
constexpr double kMaxElements = 0x1p56;
constexpr int64_t kMaxExperts = int64_t{1} << 18;  // of all layers

// Calls visit(key, member) for every field that is always stored, but the two
// enumerations.
template <typename Model, typename Visitor>
void VisitFields(Model& model, Visitor&& visit) {
  visit("num_layers", model.num_layers);
  visit("hidden_size", model.hidden_size);
  visit("ffn_hidden_size", model.ffn_hidden_size);
  visit("num_attention_heads", model.num_attention_heads);
  visit("num_query_groups", model.num_query_groups);
  visit("kv_channels", model.kv_channels);
  visit("vocab_size", model.vocab_size);
  visit("padded_vocab_size", model.padded_vocab_size);
  visit("max_position_embeddings", model.max_position_embeddings);
  visit("norm_epsilon", model.norm_epsilon);
  visit("rotary_base", model.rotary_base);
  visit("swiglu", model.swiglu);
  visit("add_bias_linear", model.add_bias_linear);
  visit("add_qkv_bias", model.add_qkv_bias);
  visit("untie_embeddings_and_output_weights",
        model.untie_embeddings_and_output_weights);
}

// The same for what is stored if it differs from its default: how positions
// are rotated,
template <typename Model, typename Visitor>
void VisitRotaryFields(Model& model, Visitor&& visit) {
  visit("rotary_interleaved", model.rotary_interleaved);
  visit("rotary_seq_len_interpolation_factor",
        model.rotary_seq_len_interpolation_factor);
  visit("use_rope_scaling", model.use_rope_scaling);
  visit("rope_scaling_factor", model.rope_scaling_factor);
  visit("rope_low_freq_factor", model.rope_low_freq_factor);
  visit("rope_high_freq_factor", model.rope_high_freq_factor);
  visit("rope_original_max_position_embeddings",
        model.rope_original_max_position_embeddings);
}

// the mixture of experts,
template <typename Model, typename Visitor>
void VisitMixtureFields(Model& model, Visitor&& visit) {
  visit("num_experts", model.num_experts);
  visit("dense_layers", model.dense_layers);
  visit("moe_ffn_hidden_size", model.moe_ffn_hidden_size);
  visit("moe_router_topk", model.moe_router_topk);
  visit("moe_shared_expert_intermediate_size",
        model.moe_shared_expert_intermediate_size);
  visit("moe_shared_expert_gate", model.moe_shared_expert_gate);
  visit("moe_router_pre_softmax", model.moe_router_pre_softmax);
}

// and all of it.
template <typename Model, typename Visitor>
void VisitOptionalFields(Model& model, Visitor&& visit) {
  visit("qk_layernorm", model.qk_layernorm);
  visit("sliding_window", model.sliding_window);
  VisitRotaryFields(model, visit);
  VisitMixtureFields(model, visit);
}

constexpr char kNormalizationKey[] = "normalization";
constexpr char kPositionKey[] = "position_embedding_type";
constexpr char kActivationKey[] = "gelu";
constexpr char kTanhGelu[] = "tanh";
constexpr char kExactGelu[] = "erf";

absl::Status BadKey(absl::string_view key, absl::string_view problem) {
  return absl::DataLossError(
      absl::StrCat("checkpoint state: model.", key, " ", problem));
}

absl::StatusOr<std::string> StringField(const json& object,
                                        absl::string_view key) {
  const auto it = object.find(std::string(key));
  if (it == object.end()) return BadKey(key, "is missing");
  if (!it->is_string()) return BadKey(key, "is not a string");
  return it->get<std::string>();
}

// An upper bound of the model's elements, in floating point: the exact product
// may overflow.
double ElementsAtMost(const ModelConfig& model) {
  const auto hidden = static_cast<double>(model.hidden_size);
  const auto heads = static_cast<double>(model.num_attention_heads) *
                     static_cast<double>(model.kv_channels);
  const auto ffn =
      static_cast<double>(model.ffn_hidden_size) +
      static_cast<double>(model.moe_shared_expert_intermediate_size) +
      static_cast<double>(model.num_experts) *
          (static_cast<double>(model.moe_ffn_hidden_size) + 1);
  const double matrices = hidden * (4 * heads + 3 * ffn);
  const double vectors = 8 * (hidden + heads + ffn);
  return static_cast<double>(model.num_layers) * (matrices + vectors) +
         hidden * (2 * static_cast<double>(model.padded_vocab_size) +
                   static_cast<double>(model.max_position_embeddings) + 2);
}

// What visit(model, visitor) visits, by key.
template <typename Visit>
json Collect(const ModelConfig& model, Visit visit) {
  json object;
  visit(model,
        [&object](const char* key, const auto& value) { object[key] = value; });
  return object;
}

json OptionalFields(const ModelConfig& model) {
  return Collect(model, [](const ModelConfig& from, auto&& visitor) {
    VisitOptionalFields(from, visitor);
  });
}

json MixtureFields(const ModelConfig& model) {
  return Collect(model, [](const ModelConfig& from, auto&& visitor) {
    VisitMixtureFields(from, visitor);
  });
}

json RotaryFields(const ModelConfig& model) {
  return Collect(model, [](const ModelConfig& from, auto&& visitor) {
    VisitRotaryFields(from, visitor);
  });
}

absl::Status CheckExtent(const char* key, int64_t value, int64_t min,
                         int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(key, " is ", value, ", expected ", min, " to ", max));
}

// Errors: InvalidArgument for the first key that has not the value it has in
// `expected`, `why`.
absl::Status CheckEqual(const json& found, const json& expected,
                        absl::string_view why) {
  for (const auto& [key, value] : found.items()) {
    if (value == expected[key]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(key, " is ", value.dump(), ", but ", why));
  }
  return absl::OkStatus();
}

absl::Status CheckAboveZero(const char* key, double value) {
  if (value > 0 && std::isfinite(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(key, " is ", value, ", expected above 0"));
}

absl::Status CheckRotary(const ModelConfig& model) {
  SS_RETURN_IF_ERROR(CheckAboveZero("rotary_base", model.rotary_base));
  const json defaults = RotaryFields(ModelConfig());
  if (model.position_embedding != PositionEmbedding::kRope) {
    return CheckEqual(RotaryFields(model), defaults,
                      "position_embedding_type is not rope");
  }
  if (model.kv_channels % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kv_channels is ", model.kv_channels,
        ", expected an even head width for rotary position embeddings"));
  }
  const double interpolation = model.rotary_seq_len_interpolation_factor;
  SS_RETURN_IF_ERROR(
      CheckAboveZero("rotary_seq_len_interpolation_factor", interpolation));
  if (!model.use_rope_scaling) {
    json plain = defaults;
    plain["rotary_seq_len_interpolation_factor"] = interpolation;
    plain["rotary_interleaved"] = model.rotary_interleaved;
    return CheckEqual(RotaryFields(model), plain, "use_rope_scaling is false");
  }
  if (interpolation != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("rotary_seq_len_interpolation_factor is ", interpolation,
                     ", but use_rope_scaling is true, expected one of them"));
  }
  SS_RETURN_IF_ERROR(
      CheckAboveZero("rope_scaling_factor", model.rope_scaling_factor));
  SS_RETURN_IF_ERROR(
      CheckAboveZero("rope_low_freq_factor", model.rope_low_freq_factor));
  SS_RETURN_IF_ERROR(
      CheckAboveZero("rope_high_freq_factor", model.rope_high_freq_factor));
  SS_RETURN_IF_ERROR(CheckExtent("rope_original_max_position_embeddings",
                                 model.rope_original_max_position_embeddings, 1,
                                 kMaxExtent));
  if (model.rope_low_freq_factor < model.rope_high_freq_factor) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "rope_low_freq_factor is ", model.rope_low_freq_factor,
      ", expected below rope_high_freq_factor ", model.rope_high_freq_factor));
}

absl::Status CheckDenseLayers(const ModelConfig& model) {
  const std::vector<int64_t>& layers = model.dense_layers;
  const auto refuse = [&](const std::string& problem) {
    return absl::InvalidArgumentError(absl::StrCat("dense_layers ", problem));
  };
  if (std::ssize(layers) >= model.num_layers) {
    return refuse("names all layers; such a model has no experts");
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] < 0 || layers[i] >= model.num_layers) {
      return refuse(absl::StrCat("has ", layers[i], ", expected 0 to ",
                                 model.num_layers - 1));
    }
    if (i > 0 && layers[i] <= layers[i - 1]) {
      return refuse("is not ascending");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckExperts(const ModelConfig& model) {
  SS_RETURN_IF_ERROR(CheckExtent("num_experts", model.num_experts, 0,
                                 kMaxExperts / model.num_layers));
  if (!model.has_experts()) {
    return CheckEqual(MixtureFields(model), MixtureFields(ModelConfig()),
                      "num_experts is 0; give --num-experts or drop it");
  }
  SS_RETURN_IF_ERROR(CheckExtent("moe_ffn_hidden_size",
                                 model.moe_ffn_hidden_size, 1, kMaxExtent));
  SS_RETURN_IF_ERROR(CheckExtent("moe_router_topk", model.moe_router_topk, 1,
                                 model.num_experts));
  SS_RETURN_IF_ERROR(CheckDenseLayers(model));
  const int64_t shared = model.moe_shared_expert_intermediate_size;
  SS_RETURN_IF_ERROR(CheckExtent("moe_shared_expert_intermediate_size", shared,
                                 0, kMaxExtent));
  if (shared > 0 && model.add_bias_linear) {
    return absl::InvalidArgumentError(
        "moe_shared_expert_intermediate_size is set, but a shared expert has "
        "no biases; add --disable-bias-linear");
  }
  if (shared > 0 || !model.moe_shared_expert_gate) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "moe_shared_expert_gate is set, but there is no shared expert; give "
      "--moe-shared-expert-intermediate-size");
}

}  // namespace

ModelConfig WithoutExperts(ModelConfig model) {
  const ModelConfig defaults;
  VisitMixtureFields(model, [](const char*, auto& value) { value = {}; });
  model.moe_router_topk = defaults.moe_router_topk;
  return model;
}

absl::Status Validate(const ModelConfig& model) {
  absl::Status status;
  VisitFields(model, [&status](const char* key, const auto& value) {
    if constexpr (std::is_same_v<decltype(value), const int64_t&>) {
      status.Update(CheckExtent(key, value, 1, kMaxExtent));
    }
  });
  SS_RETURN_IF_ERROR(status);
  SS_RETURN_IF_ERROR(
      CheckExtent("num_layers", model.num_layers, 1, kMaxLayers));
  SS_RETURN_IF_ERROR(CheckExperts(model));
  if (ElementsAtMost(model) > kMaxElements) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the model has about ", ElementsAtMost(model),
        " parameters, expected at most ", kMaxElements, "; check the sizes"));
  }
  if (model.num_attention_heads % model.num_query_groups != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_query_groups ", model.num_query_groups,
        " does not divide num_attention_heads ", model.num_attention_heads));
  }
  if (model.padded_vocab_size < model.vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("padded_vocab_size ", model.padded_vocab_size,
                     " is below vocab_size ", model.vocab_size));
  }
  SS_RETURN_IF_ERROR(
      CheckExtent("sliding_window", model.sliding_window, 0, kMaxExtent));
  SS_RETURN_IF_ERROR(CheckAboveZero("norm_epsilon", model.norm_epsilon));
  if (model.swiglu && model.exact_gelu) {
    return absl::InvalidArgumentError(
        "gelu is \"erf\", but swiglu is true, which has no GELU");
  }
  return CheckRotary(model);
}

json ToJson(const ModelConfig& model) {
  json object;
  VisitFields(model, [&object](const char* key, const auto& value) {
    object[key] = value;
  });
  const json defaults = OptionalFields(ModelConfig());
  const json optional = OptionalFields(model);
  for (const auto& [key, value] : optional.items()) {
    if (value != defaults[key]) object[key] = value;
  }
  object[kNormalizationKey] =
      model.normalization == Normalization::kRmsNorm ? "RMSNorm" : "LayerNorm";
  object[kPositionKey] = model.position_embedding == PositionEmbedding::kRope
                             ? "rope"
                             : "learned_absolute";
  object[kActivationKey] = model.exact_gelu ? kExactGelu : kTanhGelu;
  return object;
}

absl::StatusOr<ModelConfig> ModelFromJson(const json& object) {
  if (!object.is_object()) {
    return absl::DataLossError(
        "checkpoint state: model is missing or not an object");
  }
  ModelConfig model;
  absl::Status status;
  std::set<absl::string_view> known = {kNormalizationKey, kPositionKey,
                                       kActivationKey};
  const auto read = [&](const char* key, auto& value) {
    const auto it = object.find(key);
    if (it == object.end()) return false;
    known.insert(key);
    if (HasType(*it, value)) {
      it->get_to(value);
    } else {
      status.Update(BadKey(key, "has another type than expected"));
    }
    return true;
  };
  VisitFields(model, [&](const char* key, auto& value) {
    if (!read(key, value)) status.Update(BadKey(key, "is missing"));
  });
  VisitOptionalFields(model, read);
  SS_RETURN_IF_ERROR(status);

  SS_ASSIGN_OR_RETURN(const std::string norm,
                      StringField(object, kNormalizationKey));
  SS_ASSIGN_OR_RETURN(const std::string position,
                      StringField(object, kPositionKey));
  SS_ASSIGN_OR_RETURN(const std::string gelu,
                      StringField(object, kActivationKey));
  if (norm == "RMSNorm") {
    model.normalization = Normalization::kRmsNorm;
  } else if (norm != "LayerNorm") {
    return BadKey(kNormalizationKey, absl::StrCat("\"", norm, "\" is unknown"));
  }
  if (position == "rope") {
    model.position_embedding = PositionEmbedding::kRope;
  } else if (position != "learned_absolute") {
    return BadKey(kPositionKey, absl::StrCat("\"", position, "\" is unknown"));
  }
  model.exact_gelu = gelu == kExactGelu;
  if (!model.exact_gelu && gelu != kTanhGelu) {
    return BadKey(kActivationKey, absl::StrCat("\"", gelu, "\" is unknown"));
  }
  for (const auto& [key, value] : object.items()) {
    if (known.contains(key)) continue;
    return absl::DataLossError(
        absl::StrCat("checkpoint state: model has the key ", Quoted(key),
                     ", which is unknown: it was written by another version"));
  }
  SS_RETURN_IF_ERROR(Annotate(Validate(model), "checkpoint state: model"));
  return model;
}

}  // namespace shardshift::reshard
