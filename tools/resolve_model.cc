// SPDX-License-Identifier: Apache-2.0
#include "tools/resolve_model.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "tools/layer_pattern.h"

namespace shardshift {
namespace {

using reshard::Normalization;
using reshard::PositionEmbedding;

std::optional<Normalization> GivenNormalization(const ModelFlags& flags) {
  if (!flags.normalization.has_value()) return std::nullopt;
  return *flags.normalization == "RMSNorm" ? Normalization::kRmsNorm
                                           : Normalization::kLayerNorm;
}

std::optional<PositionEmbedding> GivenPositions(const ModelFlags& flags) {
  if (!flags.position_embedding_type.has_value()) return std::nullopt;
  return *flags.position_embedding_type == "rope"
             ? PositionEmbedding::kRope
             : PositionEmbedding::kLearnedAbsolute;
}

// Megatron's flag says what is not there.
std::optional<bool> GivenLinearBias(const ModelFlags& flags) {
  if (!flags.disable_bias_linear.has_value()) return std::nullopt;
  return !*flags.disable_bias_linear;
}

// Megatron ignores --num-query-groups without --group-query-attention; here it
// implies it.
std::optional<int64_t> GivenQueryGroups(const ModelFlags& flags,
                                        int64_t heads) {
  if (!flags.group_query_attention.has_value()) return flags.num_query_groups;
  if (!*flags.group_query_attention) return heads;
  return flags.num_query_groups.value_or(1);
}

void SetRotation(const ModelFlags& flags, reshard::ModelConfig& model,
                 Overlay& overlay) {
  const Change never = Change::kNever;
  overlay.Set("--rotary-base", flags.rotary_base, model.rotary_base, never);
  overlay.Set("--rotary-interleaved", flags.rotary_interleaved,
              model.rotary_interleaved, never);
  overlay.Set("--rotary-seq-len-interpolation-factor",
              flags.rotary_seq_len_interpolation_factor,
              model.rotary_seq_len_interpolation_factor, never);
  overlay.Set("--use-rope-scaling", flags.use_rope_scaling,
              model.use_rope_scaling, never);
  overlay.Set("--rope-scaling-factor", flags.rope_scaling_factor,
              model.rope_scaling_factor, never);
}

void SetDenseLayers(const ModelFlags& flags, reshard::ModelConfig& model,
                    Overlay& overlay) {
  if (!flags.moe_layer_freq.has_value()) return;
  const absl::StatusOr<std::vector<int64_t>> layers =
      ParseDenseLayers(*flags.moe_layer_freq, model.num_layers);
  if (!layers.ok()) {
    overlay.Refuse(std::string(layers.status().message()));
    return;
  }
  overlay.Set("--moe-layer-freq as layers without experts",
              std::optional(*layers), model.dense_layers, Change::kNever);
}

// Widths that follow from others unless they are given.
void FillModelDefaults(const ModelFlags& flags, int64_t seq_length,
                       reshard::ModelConfig& model) {
  if (model.ffn_hidden_size == 0) {
    constexpr int64_t kMultiple = 64;
    model.ffn_hidden_size =
        model.swiglu ? std::max(kMultiple, 8 * model.hidden_size / 3 /
                                               kMultiple * kMultiple)
                     : 4 * model.hidden_size;
  }
  if (model.has_experts() && model.moe_ffn_hidden_size == 0) {
    model.moe_ffn_hidden_size = model.ffn_hidden_size;
  }
  if (model.kv_channels == 0) {
    model.kv_channels = model.hidden_size / model.num_attention_heads;
  }
  model.num_query_groups = GivenQueryGroups(flags, model.num_attention_heads)
                               .value_or(model.num_attention_heads);
  if (model.max_position_embeddings == 0) {
    model.max_position_embeddings = seq_length;
  }
}

}  // namespace

absl::Status Require(const char* flag, bool given, const char* why) {
  if (given) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, " is missing; ", why));
}

void SetModel(const ModelFlags& flags, reshard::ModelConfig& model,
              Overlay& overlay) {
  const Change never = Change::kNever;
  overlay.Set("--num-layers", flags.num_layers, model.num_layers, never);
  overlay.Set("--hidden-size", flags.hidden_size, model.hidden_size, never);
  overlay.Set("--ffn-hidden-size", flags.ffn_hidden_size, model.ffn_hidden_size,
              never);
  overlay.Set("--num-attention-heads", flags.num_attention_heads,
              model.num_attention_heads, never);
  overlay.Set("--num-query-groups",
              GivenQueryGroups(flags, model.num_attention_heads),
              model.num_query_groups, never);
  overlay.Set("--kv-channels", flags.kv_channels, model.kv_channels, never);
  overlay.Set("--max-position-embeddings", flags.max_position_embeddings,
              model.max_position_embeddings, never);
  overlay.Set("--vocab-size", flags.vocab_size, model.vocab_size, never);
  overlay.Set("--normalization", GivenNormalization(flags), model.normalization,
              never);
  overlay.Set("--norm-epsilon", flags.norm_epsilon, model.norm_epsilon, never);
  overlay.Set("--swiglu", flags.swiglu, model.swiglu, never);
  overlay.Set("biases of linear layers", GivenLinearBias(flags),
              model.add_bias_linear, never);
  overlay.Set("--add-qkv-bias", flags.add_qkv_bias, model.add_qkv_bias, never);
  overlay.Set("--position-embedding-type", GivenPositions(flags),
              model.position_embedding, never);
  SetRotation(flags, model, overlay);
  overlay.Set("--untie-embeddings-and-output-weights", flags.untie_embeddings,
              model.untie_embeddings_and_output_weights, never);
  overlay.Set("--qk-layernorm", flags.qk_layernorm, model.qk_layernorm, never);
  overlay.Set("--window-size as a sliding window", flags.sliding_window,
              model.sliding_window, never);
  overlay.Set("--num-experts", flags.num_experts, model.num_experts, never);
  SetDenseLayers(flags, model, overlay);
  overlay.Set("--moe-ffn-hidden-size", flags.moe_ffn_hidden_size,
              model.moe_ffn_hidden_size, never);
  overlay.Set("--moe-router-topk", flags.moe_router_topk, model.moe_router_topk,
              never);
  overlay.Set("--moe-shared-expert-intermediate-size",
              flags.moe_shared_expert_intermediate_size,
              model.moe_shared_expert_intermediate_size, never);
  overlay.Set("--moe-shared-expert-gate", flags.moe_shared_expert_gate,
              model.moe_shared_expert_gate, never);
  overlay.Set("--moe-router-pre-softmax", flags.moe_router_pre_softmax,
              model.moe_router_pre_softmax, never);
}

absl::StatusOr<std::optional<KnownModel>> FindKnownModel(
    const ModelFlags& flags, const std::optional<KnownModel>& weights) {
  if (!flags.hf_config.has_value()) return weights;
  SS_ASSIGN_OR_RETURN(const KnownModel config,
                      ReadHfConfigFlag(*flags.hf_config));
  if (weights.has_value()) {
    SS_RETURN_IF_ERROR(CheckSameModel(config, *weights));
  }
  return config;
}

absl::Status MakeModel(const RunFlags& flags, reshard::ModelConfig& model) {
  const ModelFlags& shape = flags.model;
  SS_RETURN_IF_ERROR(Require("--num-layers", shape.num_layers.has_value(),
                             "a new run needs it, or --hf-config"));
  SS_RETURN_IF_ERROR(Require("--hidden-size", shape.hidden_size.has_value()));
  SS_RETURN_IF_ERROR(
      Require("--num-attention-heads", shape.num_attention_heads.has_value()));
  SS_RETURN_IF_ERROR(Require("--vocab-size", shape.vocab_size.has_value()));
  if (!shape.kv_channels.has_value() &&
      *shape.hidden_size % *shape.num_attention_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--hidden-size ", *shape.hidden_size,
                     " is not divisible by --num-attention-heads ",
                     *shape.num_attention_heads, "; or give --kv-channels"));
  }
  Overlay overlay(nullptr, "", /*override_schedule=*/false);
  SetModel(shape, model, overlay);
  FillModelDefaults(shape, flags.seq_length.value_or(0), model);
  return overlay.status();
}

absl::Status TakeModel(const KnownModel& known, const ModelFlags& flags,
                       reshard::ModelConfig& model) {
  model = known.model;
  Overlay overlay(known.origin.c_str(), "; drop the flag",
                  /*override_schedule=*/false);
  SetModel(flags, model, overlay);
  return overlay.status();
}

}  // namespace shardshift
