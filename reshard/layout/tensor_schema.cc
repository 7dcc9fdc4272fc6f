// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/tensor_schema.h"

#include "absl/strings/str_cat.h"

namespace shardshift::reshard {
namespace {

enum class Dim {
  kNone,
  kOne,
  kHidden,
  kQuery,
  kKey,
  kHead,
  kFeedForward,
  kExperts,
  kVocabulary,
  kPositions
};

enum class When {
  kAlways,
  kLearnedPositions,
  kLayerNorm,
  kLinearBias,
  kQkvBias,
  kQkNorm,
  kQkNormBias,
  kGated,
  kGatedBias,
  kPlain,
  kPlainBias,
  kUntied,
  kDense,
  kExperts,
  kSharedExpert,
  kSharedGate,
};

struct Source {
  const char* name = nullptr;  // null ends the list
  Dim rows = Dim::kNone;
  Dim columns = Dim::kNone;  // kNone: a vector
};

// One parameter of Megatron's model in registration order, and the logical
// tensors it is made of.
struct Rule {
  const char* name;
  Split split;
  When when;
  Source sources[kMaxSources];
};

// Rules whose parameters share a prefix, a width, and the ranks they are cut
// over.
struct RuleGroup {
  const char* prefix;
  std::span<const Rule> rules;
  int64_t ModelConfig::*feed_forward_width = nullptr;
  When when = When::kAlways;
  bool per_expert = false;  // once for each; the number follows the prefix
};

constexpr Rule kEmbeddingRules[] = {
    {"embedding.word.weight",
     Split::kVocabulary,
     When::kAlways,
     {{"embedding.word.weight", Dim::kVocabulary, Dim::kHidden}}},
    {"embedding.position.weight",
     Split::kReplicated,
     When::kLearnedPositions,
     {{"embedding.position.weight", Dim::kPositions, Dim::kHidden}}},
};

// The output projection precedes the fused QKV: the order of construction in
// Megatron, hence of its flat buffers.
constexpr Rule kAttentionRules[] = {
    {"attention.proj.weight",
     Split::kColumns,
     When::kAlways,
     {{"attention.proj.weight", Dim::kHidden, Dim::kQuery}}},
    {"attention.proj.bias",
     Split::kReplicated,
     When::kLinearBias,
     {{"attention.proj.bias", Dim::kHidden}}},
    {"attention_norm.weight",
     Split::kReplicated,
     When::kAlways,
     {{"attention_norm.weight", Dim::kHidden}}},
    {"attention_norm.bias",
     Split::kReplicated,
     When::kLayerNorm,
     {{"attention_norm.bias", Dim::kHidden}}},
    {"attention.qkv.weight",
     Split::kQkv,
     When::kAlways,
     {{"attention.q.weight", Dim::kQuery, Dim::kHidden},
      {"attention.k.weight", Dim::kKey, Dim::kHidden},
      {"attention.v.weight", Dim::kKey, Dim::kHidden}}},
    {"attention.qkv.bias",
     Split::kQkv,
     When::kQkvBias,
     {{"attention.q.bias", Dim::kQuery},
      {"attention.k.bias", Dim::kKey},
      {"attention.v.bias", Dim::kKey}}},
    {"attention.q_norm.weight",
     Split::kReplicated,
     When::kQkNorm,
     {{"attention.q_norm.weight", Dim::kHead}}},
    {"attention.q_norm.bias",
     Split::kReplicated,
     When::kQkNormBias,
     {{"attention.q_norm.bias", Dim::kHead}}},
    {"attention.k_norm.weight",
     Split::kReplicated,
     When::kQkNorm,
     {{"attention.k_norm.weight", Dim::kHead}}},
    {"attention.k_norm.bias",
     Split::kReplicated,
     When::kQkNormBias,
     {{"attention.k_norm.bias", Dim::kHead}}},
    {"mlp_norm.weight",
     Split::kReplicated,
     When::kAlways,
     {{"mlp_norm.weight", Dim::kHidden}}},
    {"mlp_norm.bias",
     Split::kReplicated,
     When::kLayerNorm,
     {{"mlp_norm.bias", Dim::kHidden}}},
};

// A feed-forward block, as a layer has one, each expert, and the expert that
// all tokens go to.
constexpr Rule kFeedForwardRules[] = {
    {"fc1.weight",
     Split::kRows,
     When::kGated,
     {{"gate.weight", Dim::kFeedForward, Dim::kHidden},
      {"up.weight", Dim::kFeedForward, Dim::kHidden}}},
    {"fc1.bias",
     Split::kRows,
     When::kGatedBias,
     {{"gate.bias", Dim::kFeedForward}, {"up.bias", Dim::kFeedForward}}},
    {"fc1.weight",
     Split::kRows,
     When::kPlain,
     {{"up.weight", Dim::kFeedForward, Dim::kHidden}}},
    {"fc1.bias",
     Split::kRows,
     When::kPlainBias,
     {{"up.bias", Dim::kFeedForward}}},
    {"fc2.weight",
     Split::kColumns,
     When::kAlways,
     {{"down.weight", Dim::kHidden, Dim::kFeedForward}}},
    {"fc2.bias",
     Split::kReplicated,
     When::kLinearBias,
     {{"down.bias", Dim::kHidden}}},
};

constexpr Rule kRouterRules[] = {
    {"weight",
     Split::kReplicated,
     When::kAlways,
     {{"weight", Dim::kExperts, Dim::kHidden}}},
    {"bias", Split::kReplicated, When::kLinearBias, {{"bias", Dim::kExperts}}},
};

constexpr Rule kSharedGateRules[] = {
    {"weight",
     Split::kReplicated,
     When::kAlways,
     {{"weight", Dim::kOne, Dim::kHidden}}},
};

constexpr Rule kOutputRules[] = {
    {"final_norm.weight",
     Split::kReplicated,
     When::kAlways,
     {{"final_norm.weight", Dim::kHidden}}},
    {"final_norm.bias",
     Split::kReplicated,
     When::kLayerNorm,
     {{"final_norm.bias", Dim::kHidden}}},
    {"output.weight",
     Split::kVocabulary,
     When::kUntied,
     {{"output.weight", Dim::kVocabulary, Dim::kHidden}}},
};

constexpr Rule kTiedOutputRules[] = {
    {"output.weight",
     Split::kVocabulary,
     When::kAlways,
     {{"embedding.word.weight", Dim::kVocabulary, Dim::kHidden}}},
};

// Registration order: Megatron's. An expert's feed-forward block follows that
// of the expert before.
constexpr RuleGroup kLayerGroups[] = {
    {"", kAttentionRules},
    {"mlp.", kFeedForwardRules, &ModelConfig::ffn_hidden_size, When::kDense},
    {"mlp.router.", kRouterRules, nullptr, When::kExperts},
    {"mlp.experts.", kFeedForwardRules, &ModelConfig::moe_ffn_hidden_size,
     When::kExperts, /*per_expert=*/true},
    {"mlp.shared_experts.output_gate.", kSharedGateRules, nullptr,
     When::kSharedGate},
    {"mlp.shared_experts.", kFeedForwardRules,
     &ModelConfig::moe_shared_expert_intermediate_size, When::kSharedExpert},
};
constexpr RuleGroup kEmbeddingGroup = {"", kEmbeddingRules};
// Its source is the first tensor of the model.
constexpr RuleGroup kTiedOutputGroup = {"", kTiedOutputRules};
constexpr RuleGroup kOutputGroup = {"", kOutputRules};

bool Applies(const ModelConfig& model, When when) {
  switch (when) {
    case When::kAlways:
      return true;
    case When::kLearnedPositions:
      return model.position_embedding == PositionEmbedding::kLearnedAbsolute;
    case When::kLayerNorm:
      return model.normalization == Normalization::kLayerNorm;
    case When::kLinearBias:
      return model.add_bias_linear;
    case When::kQkvBias:
      return model.add_bias_linear || model.add_qkv_bias;
    case When::kGated:
      return model.swiglu;
    case When::kGatedBias:
      return model.swiglu && model.add_bias_linear;
    case When::kPlain:
      return !model.swiglu;
    case When::kPlainBias:
      return !model.swiglu && model.add_bias_linear;
    case When::kUntied:
      return model.untie_embeddings_and_output_weights;
    case When::kQkNorm:
      return model.qk_layernorm;
    case When::kQkNormBias:
      return model.qk_layernorm &&
             model.normalization == Normalization::kLayerNorm;
    case When::kDense:
      return !model.has_experts();
    case When::kExperts:
      return model.has_experts();
    case When::kSharedExpert:
      return model.moe_shared_expert_intermediate_size > 0;
    case When::kSharedGate:
      return model.moe_shared_expert_gate;
  }
  return false;
}

int64_t Extent(const ModelConfig& model, const RuleGroup& group, Dim dim) {
  switch (dim) {
    case Dim::kNone:
      return 1;
    case Dim::kHidden:
      return model.hidden_size;
    case Dim::kQuery:
      return model.query_width();
    case Dim::kKey:
      return model.key_width();
    case Dim::kFeedForward:
      return model.*group.feed_forward_width;
    case Dim::kHead:
      return model.kv_channels;
    case Dim::kExperts:
      return model.num_experts;
    case Dim::kOne:
      return 1;
    case Dim::kVocabulary:
      return model.vocab_size;
    case Dim::kPositions:
      return model.max_position_embeddings;
  }
  return 0;
}

TensorGroup MakeGroup(const ModelConfig& model, const RuleGroup& group) {
  TensorGroup made{.prefix = group.prefix,
                   .copies = group.per_expert ? model.num_experts : 1,
                   .per_expert = group.per_expert};
  if (!Applies(model, group.when)) return made;
  for (const Rule& rule : group.rules) {
    if (!Applies(model, rule.when)) continue;
    ParameterRule parameter{.name = rule.name,
                            .split = rule.split,
                            .first_tensor = made.tensors_per_copy};
    for (const Source& source : rule.sources) {
      if (source.name == nullptr) break;
      ckpt::Shape shape = {Extent(model, group, source.rows)};
      if (source.columns != Dim::kNone) {
        shape.push_back(Extent(model, group, source.columns));
      }
      parameter.sources.push_back({source.name, std::move(shape)});
    }
    made.tensors_per_copy += static_cast<int64_t>(parameter.sources.size());
    made.rules.push_back(std::move(parameter));
  }
  return made;
}

}  // namespace

std::string TensorGroup::PrefixOf(int64_t copy) const {
  return per_expert ? absl::StrCat(prefix, copy, ".") : prefix;
}

LayerSchema::LayerSchema(const ModelConfig& model) {
  for (const RuleGroup& rules : kLayerGroups) {
    TensorGroup group = MakeGroup(model, rules);
    group.first_tensor = num_tensors;
    num_tensors += group.num_tensors();
    if (!group.rules.empty()) groups.push_back(std::move(group));
  }
}

TensorSchema::TensorSchema(const ModelConfig& model)
    : embedding(MakeGroup(model, kEmbeddingGroup)),
      output(MakeGroup(model, kOutputGroup)),
      tied_output(MakeGroup(model, kTiedOutputGroup)),
      layer_(model),
      dense_layer_(WithoutExperts(model)),
      dense_layers_(model.dense_layers) {
  output.first_tensor = FirstTensorOf(model.num_layers);
}

int64_t TensorSchema::FirstTensorOf(int64_t layer) const {
  const int64_t dense =
      std::ranges::lower_bound(dense_layers_, layer) - dense_layers_.begin();
  return embedding.num_tensors() + dense * dense_layer_.num_tensors +
         (layer - dense) * layer_.num_tensors;
}

std::string LayerPrefix(int64_t layer) {
  return absl::StrCat("layers.", layer, ".");
}

}  // namespace shardshift::reshard
