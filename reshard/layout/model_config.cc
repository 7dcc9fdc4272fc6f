// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/model_config.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/layout/json_types.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

constexpr int64_t kMaxExtent = int64_t{1} << 31;
// What a stored model may ask of memory for its list of tensors.
constexpr int64_t kMaxLayers = int64_t{1} << 16;
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

// The same for what is stored if it differs from its default.
template <typename Model, typename Visitor>
void VisitOptionalFields(Model& model, Visitor&& visit) {
  visit("qk_layernorm", model.qk_layernorm);
  visit("num_experts", model.num_experts);
  visit("moe_ffn_hidden_size", model.moe_ffn_hidden_size);
  visit("moe_router_topk", model.moe_router_topk);
  visit("moe_shared_expert_intermediate_size",
        model.moe_shared_expert_intermediate_size);
  visit("moe_shared_expert_gate", model.moe_shared_expert_gate);
}

constexpr char kNormalizationKey[] = "normalization";
constexpr char kPositionKey[] = "position_embedding_type";
constexpr char kActivationKey[] = "gelu";
constexpr char kTanhGelu[] = "tanh";

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

json OptionalFields(const ModelConfig& model) {
  json object;
  VisitOptionalFields(model, [&object](const char* key, const auto& value) {
    object[key] = value;
  });
  return object;
}

absl::Status CheckExtent(const char* key, int64_t value, int64_t min,
                         int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(key, " is ", value, ", expected ", min, " to ", max));
}

// Without experts the other fields of a mixture have their defaults.
absl::Status CheckNoExperts(const ModelConfig& model) {
  ModelConfig plain;
  plain.qk_layernorm = model.qk_layernorm;
  const json expected = OptionalFields(plain);
  const json found = OptionalFields(model);
  for (const auto& [key, value] : found.items()) {
    if (value == expected[key]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(key, " is ", value.dump(),
                     ", but num_experts is 0; give --num-experts or drop it"));
  }
  return absl::OkStatus();
}

absl::Status CheckExperts(const ModelConfig& model) {
  SS_RETURN_IF_ERROR(CheckExtent("num_experts", model.num_experts, 0,
                                 kMaxExperts / model.num_layers));
  if (!model.has_experts()) return CheckNoExperts(model);
  SS_RETURN_IF_ERROR(CheckExtent("moe_ffn_hidden_size",
                                 model.moe_ffn_hidden_size, 1, kMaxExtent));
  SS_RETURN_IF_ERROR(CheckExtent("moe_router_topk", model.moe_router_topk, 1,
                                 model.num_experts));
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
  if (model.position_embedding == PositionEmbedding::kRope &&
      model.kv_channels % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kv_channels is ", model.kv_channels,
        ", expected an even head width for rotary position embeddings"));
  }
  if (!(model.norm_epsilon > 0) || !std::isfinite(model.norm_epsilon)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "norm_epsilon is ", model.norm_epsilon, ", expected above 0"));
  }
  if (!(model.rotary_base > 0) || !std::isfinite(model.rotary_base)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rotary_base is ", model.rotary_base, ", expected above 0"));
  }
  return absl::OkStatus();
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
  object[kActivationKey] = kTanhGelu;
  return object;
}

absl::StatusOr<ModelConfig> ModelFromJson(const json& object) {
  if (!object.is_object()) {
    return absl::DataLossError(
        "checkpoint state: model is missing or not an object");
  }
  ModelConfig model;
  absl::Status status;
  size_t known = 3;
  const auto read = [&](const char* key, auto& value) {
    const auto it = object.find(key);
    if (it == object.end()) return false;
    ++known;
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
  if (gelu != kTanhGelu) {
    return BadKey(kActivationKey, absl::StrCat("\"", gelu, "\" is unknown"));
  }
  if (object.size() != known) {
    return absl::DataLossError(absl::StrCat(
        "checkpoint state: model has ", object.size(), " keys, expected ",
        known, "; it was written by another version"));
  }
  SS_RETURN_IF_ERROR(Annotate(Validate(model), "checkpoint state: model"));
  return model;
}

}  // namespace shardshift::reshard
