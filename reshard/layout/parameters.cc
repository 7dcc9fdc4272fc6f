// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/parameters.h"

#include <algorithm>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace shardshift::reshard {
namespace {

enum class Dim { kNone, kHidden, kQuery, kKey, kFfn, kVocabulary, kPositions };

enum class When {
  kAlways,
  kLearnedPositions,
  kLayerNorm,
  kLinearBias,
  kQkvBias,
  kGated,
  kGatedBias,
  kPlain,
  kPlainBias,
  kUntied,
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
  Source sources[3];
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
constexpr Rule kLayerRules[] = {
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
    {"mlp_norm.weight",
     Split::kReplicated,
     When::kAlways,
     {{"mlp_norm.weight", Dim::kHidden}}},
    {"mlp_norm.bias",
     Split::kReplicated,
     When::kLayerNorm,
     {{"mlp_norm.bias", Dim::kHidden}}},
    {"mlp.fc1.weight",
     Split::kRows,
     When::kGated,
     {{"mlp.gate.weight", Dim::kFfn, Dim::kHidden},
      {"mlp.up.weight", Dim::kFfn, Dim::kHidden}}},
    {"mlp.fc1.bias",
     Split::kRows,
     When::kGatedBias,
     {{"mlp.gate.bias", Dim::kFfn}, {"mlp.up.bias", Dim::kFfn}}},
    {"mlp.fc1.weight",
     Split::kRows,
     When::kPlain,
     {{"mlp.up.weight", Dim::kFfn, Dim::kHidden}}},
    {"mlp.fc1.bias",
     Split::kRows,
     When::kPlainBias,
     {{"mlp.up.bias", Dim::kFfn}}},
    {"mlp.fc2.weight",
     Split::kColumns,
     When::kAlways,
     {{"mlp.down.weight", Dim::kHidden, Dim::kFfn}}},
    {"mlp.fc2.bias",
     Split::kReplicated,
     When::kLinearBias,
     {{"mlp.down.bias", Dim::kHidden}}},
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

constexpr Rule kTiedOutputRule = {
    "output.weight",
    Split::kVocabulary,
    When::kAlways,
    {{"embedding.word.weight", Dim::kVocabulary, Dim::kHidden}}};

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
  }
  return false;
}

int64_t Extent(const ModelConfig& model, Dim dim) {
  switch (dim) {
    case Dim::kNone:
      return 1;
    case Dim::kHidden:
      return model.hidden_size;
    case Dim::kQuery:
      return model.query_width();
    case Dim::kKey:
      return model.key_width();
    case Dim::kFfn:
      return model.ffn_hidden_size;
    case Dim::kVocabulary:
      return model.vocab_size;
    case Dim::kPositions:
      return model.max_position_embeddings;
  }
  return 0;
}

std::string LayerPrefix(int64_t layer) {
  return absl::StrCat("layers.", layer, ".");
}

LogicalTensor MakeTensor(const ModelConfig& model, const std::string& prefix,
                         const Source& source) {
  LogicalTensor tensor{.name = absl::StrCat(prefix, source.name),
                       .shape = {Extent(model, source.rows)}};
  if (source.columns != Dim::kNone) {
    tensor.shape.push_back(Extent(model, source.columns));
  }
  return tensor;
}

void AppendTensors(const ModelConfig& model, std::span<const Rule> rules,
                   const std::string& prefix,
                   std::vector<LogicalTensor>& tensors) {
  for (const Rule& rule : rules) {
    if (!Applies(model, rule.when)) continue;
    for (const Source& source : rule.sources) {
      if (source.name == nullptr) break;
      tensors.push_back(MakeTensor(model, prefix, source));
    }
  }
}

// Cuts the parameters of one rank out of the logical tensors.
class Cutter {
 public:
  Cutter(const ModelConfig& model, int64_t ranks, int64_t rank)
      : model_(model), ranks_(ranks), rank_(rank) {
    const std::vector<LogicalTensor> tensors = LogicalTensors(model);
    for (size_t i = 0; i < tensors.size(); ++i) {
      index_[tensors[i].name] = static_cast<int64_t>(i);
    }
  }

  void Append(std::span<const Rule> rules, const std::string& prefix,
              std::vector<Parameter>& parameters) const {
    for (const Rule& rule : rules) {
      if (Applies(model_, rule.when)) parameters.push_back(Cut(rule, prefix));
    }
  }

 private:
  // Adds rows [begin, end) of the source to the parameter, if any.
  void AddRows(const LogicalTensor& tensor, int64_t begin, int64_t end,
               Parameter& parameter) const {
    if (begin >= end) return;
    ckpt::Box box = ckpt::WholeBox(tensor.shape);
    box.start[0] = begin;
    box.extent[0] = end - begin;
    AddPiece(tensor, box, parameter);
  }

  void AddPiece(const LogicalTensor& tensor, const ckpt::Box& box,
                Parameter& parameter) const {
    int64_t offset = 0;
    if (!parameter.pieces.empty()) {
      const Piece& last = parameter.pieces.back();
      offset = last.offset + ckpt::NumElements(last.box);
    }
    parameter.pieces.push_back(
        {.tensor = index_.at(tensor.name), .box = box, .offset = offset});
  }

  // Rows of the fused matrix run group by group: the group's query heads, its
  // key head, its value head. A rank has an equal contiguous share of them.
  void CutQkv(std::span<const LogicalTensor> qkv, Parameter& parameter) const {
    const int64_t rows = model_.qkv_width() / ranks_;
    const int64_t begin = rank_ * rows;
    const int64_t end = begin + rows;
    const int64_t head = model_.kv_channels;
    const int64_t query = model_.query_width() / model_.num_query_groups;
    const int64_t run_rows[3] = {query, head, head};
    int64_t fused = 0;
    for (int64_t group = 0; group < model_.num_query_groups; ++group) {
      for (size_t part = 0; part < 3; ++part) {
        const int64_t first = group * run_rows[part];
        const int64_t from = std::max(begin, fused);
        const int64_t to = std::min(end, fused + run_rows[part]);
        AddRows(qkv[part], first + from - fused, first + to - fused, parameter);
        fused += run_rows[part];
      }
    }
    parameter.shape[0] = rows;
  }

  Parameter Cut(const Rule& rule, const std::string& prefix) const {
    Parameter parameter{.name = absl::StrCat(prefix, rule.name),
                        .split = rule.split};
    std::vector<LogicalTensor> sources;
    for (const Source& source : rule.sources) {
      if (source.name == nullptr) break;
      sources.push_back(MakeTensor(model_, prefix, source));
    }
    parameter.shape = sources[0].shape;
    switch (rule.split) {
      case Split::kReplicated:
        AddRows(sources[0], 0, sources[0].shape[0], parameter);
        break;
      case Split::kRows:
        parameter.shape[0] = 0;
        for (const LogicalTensor& source : sources) {
          const int64_t rows = source.shape[0] / ranks_;
          AddRows(source, rank_ * rows, (rank_ + 1) * rows, parameter);
          parameter.shape[0] += rows;
        }
        break;
      case Split::kColumns: {
        ckpt::Box box = ckpt::WholeBox(sources[0].shape);
        box.extent[1] /= ranks_;
        box.start[1] = rank_ * box.extent[1];
        parameter.shape[1] = box.extent[1];
        AddPiece(sources[0], box, parameter);
        break;
      }
      case Split::kQkv:
        CutQkv(sources, parameter);
        break;
      case Split::kVocabulary: {
        const int64_t rows = model_.padded_vocab_size / ranks_;
        AddRows(sources[0], rank_ * rows,
                std::min((rank_ + 1) * rows, model_.vocab_size), parameter);
        parameter.shape[0] = rows;
        break;
      }
    }
    return parameter;
  }

  const ModelConfig& model_;
  int64_t ranks_;
  int64_t rank_;
  absl::flat_hash_map<std::string, int64_t> index_;
};

}  // namespace

int64_t Parameter::num_elements() const {
  return ckpt::NumElements(ckpt::WholeBox(shape));
}

std::vector<LogicalTensor> LogicalTensors(const ModelConfig& model) {
  std::vector<LogicalTensor> tensors;
  AppendTensors(model, kEmbeddingRules, "", tensors);
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    AppendTensors(model, kLayerRules, LayerPrefix(layer), tensors);
  }
  AppendTensors(model, kOutputRules, "", tensors);
  return tensors;
}

std::vector<Parameter> LocalParameters(const ModelConfig& model,
                                       const Layout& layout,
                                       int64_t tensor_rank, int64_t stage) {
  const Cutter cutter(model, layout.tensor, tensor_rank);
  const bool shared =
      layout.pipeline > 1 && !model.untie_embeddings_and_output_weights;
  std::vector<Parameter> parameters;
  if (stage == 0) {
    cutter.Append(kEmbeddingRules, "", parameters);
    parameters[0].shared_embedding = shared;
  }
  const LayerRange layers = LayersOfStage(model, layout, stage);
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    cutter.Append(kLayerRules, LayerPrefix(layer), parameters);
  }
  if (stage == layout.pipeline - 1) {
    cutter.Append(kOutputRules, "", parameters);
    if (shared) {
      cutter.Append({&kTiedOutputRule, 1}, "", parameters);
      parameters.back().shared_embedding = true;
      parameters.back().is_copy = true;
    }
  }
  return parameters;
}

}  // namespace shardshift::reshard
