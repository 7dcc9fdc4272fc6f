// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/hf_names.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/status_macros.h"
#include "reshard/layout/tensor_schema.h"

namespace shardshift::reshard {
namespace {

// A tensor of a file: the logical tensors whose rows lie in it one after
// another. A model has it if it has the first of them. '#' stands for the
// number of an expert: in the name, there is a tensor for each expert; only in
// the sources, all experts lie in one, along a dimension of its own.
struct Rule {
  const char* name;
  std::array<const char*, kMaxSources> sources;  // null ends the list
  bool transposed = false;
};

using Rules = std::span<const Rule>;

constexpr Rule kGpt2Embedding[] = {
    {"wte.weight", {"embedding.word.weight"}},
    {"wpe.weight", {"embedding.position.weight"}},
};

constexpr Rule kGpt2Layer[] = {
    {"ln_1.weight", {"attention_norm.weight"}},
    {"ln_1.bias", {"attention_norm.bias"}},
    {"attn.c_attn.weight",
     {"attention.q.weight", "attention.k.weight", "attention.v.weight"},
     /*transposed=*/true},
    {"attn.c_attn.bias",
     {"attention.q.bias", "attention.k.bias", "attention.v.bias"}},
    {"attn.c_proj.weight", {"attention.proj.weight"}, /*transposed=*/true},
    {"attn.c_proj.bias", {"attention.proj.bias"}},
    {"ln_2.weight", {"mlp_norm.weight"}},
    {"ln_2.bias", {"mlp_norm.bias"}},
    {"mlp.c_fc.weight", {"mlp.up.weight"}, /*transposed=*/true},
    {"mlp.c_fc.bias", {"mlp.up.bias"}},
    {"mlp.c_proj.weight", {"mlp.down.weight"}, /*transposed=*/true},
    {"mlp.c_proj.bias", {"mlp.down.bias"}},
};

constexpr Rule kGpt2Output[] = {
    {"ln_f.weight", {"final_norm.weight"}},
    {"ln_f.bias", {"final_norm.bias"}},
};

constexpr Rule kLlamaEmbedding[] = {
    {"embed_tokens.weight", {"embedding.word.weight"}},
};

constexpr Rule kLlamaAttention[] = {
    {"self_attn.q_proj.weight", {"attention.q.weight"}},
    {"self_attn.q_proj.bias", {"attention.q.bias"}},
    {"self_attn.k_proj.weight", {"attention.k.weight"}},
    {"self_attn.k_proj.bias", {"attention.k.bias"}},
    {"self_attn.v_proj.weight", {"attention.v.weight"}},
    {"self_attn.v_proj.bias", {"attention.v.bias"}},
    {"self_attn.o_proj.weight", {"attention.proj.weight"}},
    {"self_attn.o_proj.bias", {"attention.proj.bias"}},
    {"self_attn.q_norm.weight", {"attention.q_norm.weight"}},
    {"self_attn.k_norm.weight", {"attention.k_norm.weight"}},
};

constexpr Rule kLlamaFeedForward[] = {
    {"mlp.gate_proj.weight", {"mlp.gate.weight"}},
    {"mlp.gate_proj.bias", {"mlp.gate.bias"}},
    {"mlp.up_proj.weight", {"mlp.up.weight"}},
    {"mlp.up_proj.bias", {"mlp.up.bias"}},
    {"mlp.down_proj.weight", {"mlp.down.weight"}},
    {"mlp.down_proj.bias", {"mlp.down.bias"}},
};

constexpr Rule kMixtralExperts[] = {
    {"block_sparse_moe.gate.weight", {"mlp.router.weight"}},
    {"block_sparse_moe.experts.#.w1.weight", {"mlp.experts.#.gate.weight"}},
    {"block_sparse_moe.experts.#.w2.weight", {"mlp.experts.#.down.weight"}},
    {"block_sparse_moe.experts.#.w3.weight", {"mlp.experts.#.up.weight"}},
};

constexpr Rule kQwenExperts[] = {
    {"mlp.gate.weight", {"mlp.router.weight"}},
    {"mlp.experts.#.gate_proj.weight", {"mlp.experts.#.gate.weight"}},
    {"mlp.experts.#.up_proj.weight", {"mlp.experts.#.up.weight"}},
    {"mlp.experts.#.down_proj.weight", {"mlp.experts.#.down.weight"}},
    {"mlp.shared_expert.gate_proj.weight", {"mlp.shared_experts.gate.weight"}},
    {"mlp.shared_expert.up_proj.weight", {"mlp.shared_experts.up.weight"}},
    {"mlp.shared_expert.down_proj.weight", {"mlp.shared_experts.down.weight"}},
    {"mlp.shared_expert_gate.weight",
     {"mlp.shared_experts.output_gate.weight"}},
};

constexpr Rule kFusedExperts[] = {
    {"mlp.gate.weight", {"mlp.router.weight"}},
    {"mlp.experts.gate_up_proj",
     {"mlp.experts.#.gate.weight", "mlp.experts.#.up.weight"}},
    {"mlp.experts.down_proj", {"mlp.experts.#.down.weight"}},
    {"mlp.shared_expert.gate_proj.weight", {"mlp.shared_experts.gate.weight"}},
    {"mlp.shared_expert.up_proj.weight", {"mlp.shared_experts.up.weight"}},
    {"mlp.shared_expert.down_proj.weight", {"mlp.shared_experts.down.weight"}},
    {"mlp.shared_expert_gate.weight",
     {"mlp.shared_experts.output_gate.weight"}},
};

constexpr Rule kLlamaNorms[] = {
    {"input_layernorm.weight", {"attention_norm.weight"}},
    {"post_attention_layernorm.weight", {"mlp_norm.weight"}},
};

constexpr Rule kLlamaOutput[] = {
    {"norm.weight", {"final_norm.weight"}},
};

// Beside the model proper, hence without its prefix.
constexpr Rule kHead[] = {{kHfHeadName, {"output.weight"}}};

struct RuleSet {
  std::string prefix;
  const char* layers;
  Rules embedding;
  std::array<Rules, 3> layer;
  Rules output;
};

RuleSet RulesOf(const HfNaming& naming, bool has_experts) {
  if (naming.family == HfFamily::kGpt2) {
    return {.prefix = naming.bare ? "" : "transformer.",
            .layers = "h.",
            .embedding = kGpt2Embedding,
            .layer = {kGpt2Layer},
            .output = kGpt2Output};
  }
  Rules feed_forward = kLlamaFeedForward;
  if (has_experts && naming.fused_experts) {
    feed_forward = kFusedExperts;
  } else if (has_experts) {
    feed_forward = naming.family == HfFamily::kMixtral ? Rules(kMixtralExperts)
                                                       : Rules(kQwenExperts);
  }
  return {.prefix = "model.",
          .layers = "layers.",
          .embedding = kLlamaEmbedding,
          .layer = {kLlamaAttention, feed_forward, kLlamaNorms},
          .output = kLlamaOutput};
}

bool HasExpert(absl::string_view name) {
  return name.find('#') != absl::string_view::npos;
}

// Makes tensors of a model with one layer out of rules.
class Resolver {
 public:
  explicit Resolver(const ModelConfig& one_layer)
      : num_experts_(one_layer.num_experts),
        logical_(LogicalTensors(one_layer)),
        num_uses_(logical_.size()) {
    positions_.reserve(logical_.size());
    for (const LogicalTensor& tensor : logical_) {
      positions_.emplace(tensor.name, positions_.size());
    }
  }

  // Names of tensors begin with `prefix`, those of sources with
  // `source_prefix`.
  void Append(Rules rules, absl::string_view prefix,
              absl::string_view source_prefix,
              std::vector<StoredTensor>& tensors) {
    for (size_t i = 0; i < rules.size();) {
      const size_t first = i++;
      if (!HasExpert(rules[first].name)) {
        AppendOne(rules[first], 0, prefix, source_prefix, tensors);
        continue;
      }
      // One expert after another, not one rule after another.
      while (i < rules.size() && HasExpert(rules[i].name)) ++i;
      for (int64_t expert = 0; expert < num_experts_; ++expert) {
        for (const Rule& rule : rules.subspan(first, i - first)) {
          AppendOne(rule, expert, prefix, source_prefix, tensors);
        }
      }
    }
  }

  absl::Status CheckAllUsed(HfFamily family) const {
    const auto unused = std::find(num_uses_.begin(), num_uses_.end(), 0);
    if (unused == num_uses_.end()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(logical_[unused - num_uses_.begin()].name,
                     " has no place in a ", ModelType(family), " model"));
  }

 private:
  void AppendOne(const Rule& rule, int64_t expert, absl::string_view prefix,
                 absl::string_view source_prefix,
                 std::vector<StoredTensor>& tensors) {
    const bool stacked = HasExpert(rule.sources[0]) && !HasExpert(rule.name);
    StoredTensor tensor{
        .name = absl::StrCat(prefix, WithExpert(rule.name, expert)),
        .transposed = rule.transposed};
    const int64_t end = stacked ? num_experts_ : expert + 1;
    int64_t offset = 0;
    for (int64_t e = stacked ? 0 : expert; e < end; ++e) {
      ckpt::Shape shape;
      for (const char* source : rule.sources) {
        if (source == nullptr) break;
        const auto position =
            positions_.find(absl::StrCat(source_prefix, WithExpert(source, e)));
        if (position == positions_.end()) return;
        AddSource(position->second, tensor.pieces, shape, offset);
      }
      tensor.shape = shape;
    }
    if (tensor.pieces.empty()) return;
    if (stacked) tensor.shape.insert(tensor.shape.begin(), num_experts_);
    if (tensor.transposed) std::swap(tensor.shape[0], tensor.shape[1]);
    tensors.push_back(std::move(tensor));
  }

  // Puts the rows of a logical tensor below what `shape` has already.
  void AddSource(int64_t position, std::vector<Piece>& pieces,
                 ckpt::Shape& shape, int64_t& offset) {
    const ckpt::Shape& source = logical_[position].shape;
    if (shape.empty()) {
      shape = source;
    } else {
      shape[0] += source[0];
    }
    pieces.push_back(
        {.tensor = position, .box = ckpt::WholeBox(source), .offset = offset});
    offset += ckpt::NumElements(source);
    ++num_uses_[position];
  }

  static std::string WithExpert(const char* name, int64_t expert) {
    return absl::StrReplaceAll(name, {{"#", absl::StrCat(expert)}});
  }

  const int64_t num_experts_;
  const std::vector<LogicalTensor> logical_;
  absl::flat_hash_map<absl::string_view, int64_t> positions_;
  std::vector<int> num_uses_;
};

StoredTensor Shifted(StoredTensor tensor, int64_t num_tensors) {
  for (Piece& piece : tensor.pieces) piece.tensor += num_tensors;
  return tensor;
}

// A model of one layer.
struct OneLayer {
  std::vector<StoredTensor> embedding = {};
  std::vector<StoredTensor> layer = {};  // without the layer's prefix
  std::vector<StoredTensor> output = {};
  int64_t first_output_tensor = 0;
};

absl::StatusOr<OneLayer> ResolveOneLayer(ModelConfig model,
                                         const HfNaming& naming) {
  const RuleSet rules = RulesOf(naming, model.has_experts());
  model.num_layers = 1;
  model.dense_layers.clear();
  Resolver resolver(model);
  OneLayer made{.first_output_tensor = TensorSchema(model).output.first_tensor};
  resolver.Append(rules.embedding, rules.prefix, "", made.embedding);
  for (const Rules& part : rules.layer) {
    resolver.Append(part, "", LayerPrefix(0), made.layer);
  }
  resolver.Append(rules.output, rules.prefix, "", made.output);
  resolver.Append(kHead, "", "", made.output);
  SS_RETURN_IF_ERROR(resolver.CheckAllUsed(naming.family));
  return made;
}

}  // namespace

absl::StatusOr<std::vector<StoredTensor>> HfTensors(const ModelConfig& model,
                                                    const HfNaming& naming) {
  const RuleSet rules = RulesOf(naming, model.has_experts());
  SS_ASSIGN_OR_RETURN(OneLayer one, ResolveOneLayer(model, naming));
  OneLayer dense;
  if (!model.dense_layers.empty()) {
    SS_ASSIGN_OR_RETURN(dense, ResolveOneLayer(WithoutExperts(model), naming));
  }
  const TensorSchema schema(model);
  const int64_t first = schema.FirstTensorOf(0);
  std::vector<StoredTensor> tensors = std::move(one.embedding);
  tensors.reserve(tensors.size() + model.num_layers * one.layer.size() +
                  one.output.size());
  for (int64_t i = 0; i < model.num_layers; ++i) {
    const std::string prefix = absl::StrCat(rules.prefix, rules.layers, i, ".");
    const bool is_dense = model.has_experts() && !model.has_experts(i);
    for (const StoredTensor& tensor : is_dense ? dense.layer : one.layer) {
      tensors.push_back(Shifted(tensor, schema.FirstTensorOf(i) - first));
      tensors.back().name = absl::StrCat(prefix, tensor.name);
    }
  }
  for (StoredTensor& tensor : one.output) {
    tensors.push_back(Shifted(std::move(tensor), schema.output.first_tensor -
                                                     one.first_output_tensor));
  }
  return tensors;
}

}  // namespace shardshift::reshard
