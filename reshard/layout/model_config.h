// The shape of a GPT-style model: everything that decides which logical
// tensors exist and how large they are, and what is computed from them. Names
// and meaning are Megatron's.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_LAYOUT_MODEL_CONFIG_H_
#define SHARDSHIFT_RESHARD_LAYOUT_MODEL_CONFIG_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace shardshift::reshard {

enum class Normalization { kLayerNorm, kRmsNorm };
enum class PositionEmbedding { kLearnedAbsolute, kRope };

// What a stored model may ask of memory for its list of tensors.
inline constexpr int64_t kMaxLayers = int64_t{1} << 16;

// Defaults are the GPT-2 kind: LayerNorm, learned positions, GELU (tanh form),
// biases everywhere, tied embeddings. The Llama kind sets RmsNorm, kRope,
// swiglu, add_bias_linear = false and usually untied embeddings.
struct ModelConfig {
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t ffn_hidden_size = 0;
  int64_t num_attention_heads = 0;
  int64_t num_query_groups = 0;  // key/value heads
  int64_t kv_channels = 0;       // width of one head
  int64_t vocab_size = 0;        // true size; what a checkpoint stores
  // Rows of the embedding in memory, over all tensor-parallel ranks. Chosen at
  // the first start of a run and then constant: it must not depend on the
  // layout (invariant-numerics 2.5).
  int64_t padded_vocab_size = 0;
  int64_t max_position_embeddings = 0;
  Normalization normalization = Normalization::kLayerNorm;
  double norm_epsilon = 1e-5;
  PositionEmbedding position_embedding = PositionEmbedding::kLearnedAbsolute;
  double rotary_base = 10000.0;
  // Rotated together are elements 2j and 2j + 1 of a head, not j and j + half.
  bool rotary_interleaved = false;
  bool swiglu = false;
  bool add_bias_linear = true;
  bool add_qkv_bias = false;
  bool untie_embeddings_and_output_weights = false;
  bool qk_layernorm = false;  // norms of query and key heads
  // GELU by the error function instead of its tanh form. Stored as `gelu`.
  bool exact_gelu = false;
  // The positions that one attends to, itself included: Megatron's window_size
  // (sliding_window - 1, 0). 0: all before it.
  int64_t sliding_window = 0;
  // Positions are divided by this before they are rotated.
  double rotary_seq_len_interpolation_factor = 1.0;
  // The frequencies of Llama 3 (parallel-layout.md 4.13). Megatron knows the
  // last three as constants.
  bool use_rope_scaling = false;
  double rope_scaling_factor = 8.0;
  double rope_low_freq_factor = 1.0;
  double rope_high_freq_factor = 4.0;
  int64_t rope_original_max_position_embeddings = 8192;

  // Mixture of experts in the layers, in place of the feed-forward block of
  // width ffn_hidden_size; 0: none.
  int64_t num_experts = 0;
  // The layers that have such a block all the same, ascending.
  std::vector<int64_t> dense_layers = {};
  int64_t moe_ffn_hidden_size = 0;  // of an expert
  int64_t moe_router_topk = 2;      // experts a token goes to
  // Width of an expert that all tokens go to, 0: none; and whether its output
  // is weighed.
  int64_t moe_shared_expert_intermediate_size = 0;
  bool moe_shared_expert_gate = false;
  // The weights of the chosen experts are their shares in a softmax over all,
  // instead of a softmax over the chosen ones.
  bool moe_router_pre_softmax = false;

  bool operator==(const ModelConfig&) const = default;

  bool has_experts() const { return num_experts > 0; }
  bool has_experts(int64_t layer) const {
    return has_experts() && !std::ranges::binary_search(dense_layers, layer);
  }
  bool has_dense_layers() const {
    return !has_experts() || !dense_layers.empty();
  }
  int64_t num_expert_layers() const {
    return has_experts() ? num_layers - std::ssize(dense_layers) : 0;
  }
  int64_t query_width() const { return num_attention_heads * kv_channels; }
  int64_t key_width() const { return num_query_groups * kv_channels; }
  int64_t qkv_width() const { return query_width() + 2 * key_width(); }
};

// The model with a feed-forward block in every layer.
ModelConfig WithoutExperts(ModelConfig model);

// Errors: InvalidArgument naming the first flag that is out of range or
// contradicts another (extents below 1, query groups not dividing the heads,
// a padded vocabulary below the true one, an odd head under RoPE, parts of a
// mixture without experts, a rotation without RoPE).
absl::Status Validate(const ModelConfig& model);

// The `model` object of a checkpoint's state. From QK norms on, a key is there
// only if it differs from its default.
nlohmann::json ToJson(const ModelConfig& model);

// Errors: DataLoss naming the missing, mistyped or unknown key; whatever
// Validate says of the result.
absl::StatusOr<ModelConfig> ModelFromJson(const nlohmann::json& json);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_LAYOUT_MODEL_CONFIG_H_
