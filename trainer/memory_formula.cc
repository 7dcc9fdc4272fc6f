// SPDX-License-Identifier: Apache-2.0
#include "trainer/memory_formula.h"

#include <algorithm>
#include <vector>

#include "kernels/tree.h"
#include "reshard/layout/stages.h"
#include "trainer/layers/layer_stack.h"
#include "trainer/optim/sample_tree.h"
#include "trainer/pipeline/schedule.h"

namespace shardshift::trainer {
namespace {

using reshard::Layout;
using reshard::ModelConfig;

constexpr int64_t kFloatBytes = sizeof(float);

// Elements of parameters on one rank.
struct Elements {
  int64_t all = 0;
  int64_t by_block = 0;  // of them, those summed by blocks of positions
  // Of experts that are cut over other ranks than the rest, besides.
  int64_t experts = 0;

  Elements& operator+=(const Elements& other) {
    all += other.all;
    by_block += other.by_block;
    experts += other.experts;
    return *this;
  }
};

int64_t NormSize(const ModelConfig& model, int64_t width) {
  return model.normalization == reshard::Normalization::kRmsNorm ? width
                                                                 : 2 * width;
}

// Of a feed-forward block of any kind.
Elements MlpElements(const ModelConfig& model, const Layout& layout) {
  const int64_t h = model.hidden_size;
  const int64_t parts = model.swiglu ? 2 : 1;
  const auto matrices = [&](int64_t width) { return (parts + 1) * width * h; };
  Elements sum;
  if (!model.has_experts()) {
    sum.all = matrices(model.ffn_hidden_size) / layout.tensor;
    if (model.add_bias_linear) {
      sum.all += parts * model.ffn_hidden_size / layout.tensor + h;
      sum.by_block = h;
    }
    return sum;
  }
  const int64_t experts = model.num_experts / layout.expert *
                          matrices(model.moe_ffn_hidden_size) /
                          layout.expert_tensor_size();
  (layout.separates_experts() ? sum.experts : sum.all) = experts;
  sum.all +=
      matrices(model.moe_shared_expert_intermediate_size) / layout.tensor;
  sum.by_block =
      (model.num_experts + (model.moe_shared_expert_gate ? 1 : 0)) * h;
  sum.all += sum.by_block;
  return sum;
}

Elements LayerElements(const ModelConfig& model, const Layout& layout) {
  const int64_t h = model.hidden_size;
  int64_t split = model.qkv_width() * h + h * model.query_width();
  if (model.add_bias_linear || model.add_qkv_bias) split += model.qkv_width();
  int64_t shared = 2 * NormSize(model, h);
  if (model.add_bias_linear) shared += h;
  // On every rank, too, but summed by heads.
  const int64_t head_norms =
      model.qk_layernorm ? 2 * NormSize(model, model.kv_channels) : 0;
  Elements sum = {.all = split / layout.tensor + shared + head_norms,
                  .by_block = shared};
  return sum += MlpElements(model, layout);
}

Elements StageElements(const ModelConfig& model, const Layout& layout,
                       const reshard::RankCoordinates& at, int64_t layers) {
  const int64_t h = model.hidden_size;
  const bool is_first = at.pipeline == 0;
  const bool is_last = at.pipeline == layout.pipeline - 1;
  Elements sum;
  for (int64_t layer = 0; layer < layers; ++layer) {
    sum += LayerElements(model, layout);
  }
  const int64_t words = model.padded_vocab_size / layout.tensor * h;
  if (is_first) {
    sum.all += words;
    if (model.position_embedding ==
        reshard::PositionEmbedding::kLearnedAbsolute) {
      sum.all += model.max_position_embeddings * h;
    }
  }
  if (is_last) {
    sum.all += NormSize(model, h);
    sum.by_block += NormSize(model, h);
    if (!is_first || model.untie_embeddings_and_output_weights) {
      sum.all += words;
    }
  }
  return sum;
}

// Elements of activations of one micro-batch on one rank.
class Activations {
 public:
  Activations(const RunConfig& config, const Layout& layout,
              const ActivationOptions& options, int64_t micro_batch_size)
      : model_(config.model),
        options_(options),
        is_cut_(options.sequence_parallel && layout.tensor > 1),
        tensor_(layout.tensor),
        expert_tensor_(layout.expert_tensor_size()),
        drops_hidden_(config.hidden_dropout > 0),
        drops_probs_(config.attention_dropout > 0),
        samples_(micro_batch_size),
        positions_(config.seq_length),
        rows_(micro_batch_size * config.seq_length),
        heads_(model_.num_attention_heads / tensor_),
        groups_(std::max<int64_t>(1, model_.num_query_groups / tensor_)) {}

  // [r, H]: what lies between blocks.
  int64_t Stream() const {
    return rows_ * model_.hidden_size / (is_cut_ ? tensor_ : 1);
  }

  // All that a layer leaves.
  int64_t Layer() const {
    return 4 * Stream() + 2 * Stats() + rows_ * (Qkv() + Context()) +
           HeadNorms() + Probs() + Mlp();
  }

  // What a chunk keeps of its layers.
  int64_t KeptOf(const std::vector<LayerGroup>& groups) const {
    int64_t kept = 0;
    for (const LayerGroup& group : groups) {
      kept +=
          group.is_recomputed ? Stream() : (group.end - group.begin) * Layer();
    }
    return kept;
  }

  // The output layer: its input, before and after the norm; logits; the largest
  // logit, sum of exponentials and target's logit of each row.
  int64_t Head() const {
    return 2 * Stream() + Stats() + rows_ * (Logits() + 3);
  }

  // Scratch of a forward pass: an output, whole rows.
  int64_t ForwardScratch() const {
    return Stream() + std::max(Whole(), MixtureScratch());
  }

  // Scratch of the backward pass of the output layer: two gradients.
  int64_t HeadScratch() const { return 2 * Stream() + Whole(); }

  // Scratch of the backward pass of a layer: the gradient of its output and of
  // a block's input, and what the larger block needs.
  int64_t BackwardScratch() const {
    const int64_t attention =
        rows_ * (Context() + model_.qkv_width() / tensor_) +
        std::max(Whole(), AttentionScratch());
    // With dropout, what of the gradient goes into the block.
    return (drops_hidden_ ? 3 : 2) * Stream() +
           std::max(MlpScratch(), attention);
  }

  // The most that the backward pass of a chunk takes beyond what is kept
  // before it.
  int64_t BackwardPeak(const std::vector<LayerGroup>& groups) const {
    int64_t peak = 0;
    int64_t freed = 0;
    for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
      const int64_t whole = (group->end - group->begin) * Layer();
      const int64_t kept = group->is_recomputed ? Stream() : whole;
      peak = std::max(peak, whole - kept - freed + BackwardScratch());
      freed += kept;
    }
    return peak;
  }

 private:
  bool recomputes_probs() const {
    return options_.recompute.granularity == RecomputeGranularity::kSelective;
  }
  int64_t Stats() const {
    return NormSize(model_, rows_) / (is_cut_ ? tensor_ : 1);
  }
  // Inputs of an activation for each output.
  int64_t Parts() const { return model_.swiglu ? 2 : 1; }
  // What a feed-forward block of any kind leaves.
  int64_t Mlp() const {
    if (!model_.has_experts()) return rows_ * (Parts() + 1) * Ffn();
    const int64_t shared = model_.moe_shared_expert_intermediate_size;
    return OwnRows() * model_.num_experts + Slots() +
           Slots() * model_.hidden_size +
           ExpertRows() * (model_.hidden_size + (Parts() + 1) * ExpertWidth()) +
           rows_ * (Parts() + 1) * shared / tensor_ +
           (model_.moe_shared_expert_gate ? Stream() + OwnRows() : 0);
  }
  int64_t MlpScratch() const {
    if (!model_.has_experts()) return rows_ * (Parts() + 1) * Ffn() + Whole();
    // Gradients of what the experts put out and take in; then either that of
    // their first product, or rows on their way home.
    const int64_t h = model_.hidden_size;
    return Slots() * (h + 1) + 2 * ExpertRows() * h +
           std::max(ExpertRows() * Parts() * ExpertWidth(),
                    ExpertRows() * h + 2 * Slots() * h);
  }
  // What the experts put out, in their order and in that of ranks, and summed.
  int64_t MixtureScratch() const {
    if (!model_.has_experts()) return 0;
    return (2 * ExpertRows() + Slots()) * model_.hidden_size;
  }
  // Rows that the rank has, and what of them goes to experts.
  int64_t OwnRows() const { return rows_ / (is_cut_ ? tensor_ : 1); }
  int64_t Slots() const { return OwnRows() * model_.moe_router_topk; }
  // If all experts get as many tokens.
  int64_t ExpertRows() const { return Slots() * expert_tensor_; }
  int64_t ExpertWidth() const {
    return model_.moe_ffn_hidden_size / expert_tensor_;
  }

  // Widths on this rank.
  int64_t Context() const { return heads_ * model_.kv_channels; }
  int64_t Qkv() const { return Context() + 2 * groups_ * model_.kv_channels; }
  int64_t Ffn() const { return model_.ffn_hidden_size / tensor_; }
  int64_t Logits() const { return model_.padded_vocab_size / tensor_; }

  // Inputs and statistics of the norms of query and key heads.
  int64_t HeadNorms() const {
    if (!model_.qk_layernorm) return 0;
    return rows_ * (heads_ + groups_) *
           (model_.kv_channels + NormSize(model_, 1));
  }
  int64_t Probs() const {
    return recomputes_probs() ? 0 : heads_ * rows_ * positions_;
  }

  // Rows of all ranks, gathered or to be reduced, and a copy in another order.
  int64_t Whole() const {
    if (!is_cut_) return 0;
    return (samples_ > 1 ? 2 : 1) * rows_ * model_.hidden_size;
  }

  // Gradients of the keys and values of each head of a group and of their sum,
  // scores. Ranks that share a group have images of its gradients, and their
  // own ones besides.
  int64_t AttentionScratch() const {
    const int64_t heads = heads_ / groups_;
    const int64_t scores =
        (1 + (recomputes_probs() ? 1 : 0) + (drops_probs_ ? 1 : 0)) *
        positions_ * positions_;
    const int64_t own =
        2 * (heads + 1) * positions_ * model_.kv_channels + scores;
    if (model_.num_query_groups >= tensor_) return own;
    const int64_t ranks = tensor_ / model_.num_query_groups;
    const auto nodes = static_cast<int64_t>(
        kernels::CompleteNodes(ranks * heads, 0, heads).size());
    return own + rows_ * Qkv() +
           nodes * ranks * rows_ * model_.qkv_width() / tensor_;
  }

  const ModelConfig& model_;
  const ActivationOptions& options_;
  bool is_cut_;
  int64_t tensor_;
  int64_t expert_tensor_;
  bool drops_hidden_;
  bool drops_probs_;
  int64_t samples_;
  int64_t positions_;
  int64_t rows_;
  int64_t heads_;   // query heads of this rank
  int64_t groups_;  // query groups it works on
};

// A model chunk of the stage.
struct Chunk {
  std::vector<LayerGroup> groups;
  bool has_head = false;
};

// The most elements of activations while the stage goes through a batch.
int64_t PeakActivations(const Activations& formula,
                        const std::vector<Chunk>& chunks,
                        const std::vector<PipelineStep>& steps) {
  int64_t kept = 0;
  int64_t peak = 0;
  for (const PipelineStep& step : steps) {
    const auto& [groups, has_head] = chunks[step.chunk];
    const int64_t layers = formula.KeptOf(groups);
    const int64_t head = has_head ? formula.Head() : 0;
    if (step.kind == PipelineStep::Kind::kForward) {
      kept += layers + head;
      peak = std::max(peak, kept + formula.ForwardScratch());
      continue;
    }
    if (has_head) peak = std::max(peak, kept + formula.HeadScratch());
    kept -= head;
    peak = std::max(peak, kept + formula.BackwardPeak(groups));
    kept -= layers;
  }
  return peak;
}

// Sums that wait for others of the tree over the samples of a rank.
int64_t WaitingSums(const RunConfig& config, const Layout& layout,
                    int64_t data_rank) {
  const int64_t groups = config.numerics.data_granularity;
  const int64_t per_rank = groups / layout.data;
  return SampleTree(groups, config.global_batch_size / groups,
                    data_rank * per_rank, (data_rank + 1) * per_rank)
      .num_slots();
}

int64_t GradientElements(const RunConfig& config, const Layout& layout,
                         const ActivationOptions& activations,
                         const reshard::RankCoordinates& at,
                         const Elements& elements) {
  const ModelConfig& model = config.model;
  // Input and output use of a tied embedding are summed apart.
  const bool has_two_uses =
      layout.pipeline == 1 && !model.untie_embeddings_and_output_weights;
  const int64_t second_use =
      has_two_uses ? model.padded_vocab_size / layout.tensor * model.hidden_size
                   : 0;
  const int64_t blocks = config.numerics.tensor_granularity;
  const int64_t per_rank = config.numerics.data_granularity / layout.data;
  const bool is_cut = activations.sequence_parallel && layout.tensor > 1;
  const int64_t by_block = is_cut ? blocks / layout.tensor + per_rank : blocks;
  int64_t sum =
      WaitingSums(config, layout, at.data) * (elements.all + second_use) +
      by_block * elements.by_block;
  if (elements.experts == 0) return sum;
  // Apart for each data-parallel rank whose samples come here.
  const int64_t sources = layout.expert_copy_size() / layout.tensor;
  const int64_t first = at.data / sources * sources;
  for (int64_t source = first; source < first + sources; ++source) {
    sum += WaitingSums(config, layout, source) * elements.experts;
  }
  return sum;
}

}  // namespace

int64_t LayerActivationBytes(const RunConfig& config, const Layout& layout,
                             const ActivationOptions& activations,
                             int64_t micro_batch_size) {
  return kFloatBytes *
         Activations(config, layout, activations, micro_batch_size).Layer();
}

RankMemory MemoryByFormula(const RunConfig& config, const Layout& layout,
                           const ActivationOptions& activations,
                           int64_t micro_batch_size,
                           const reshard::RankCoordinates& at) {
  std::vector<Chunk> chunks;
  int64_t layers = 0;
  for (const reshard::LayerRange& range :
       reshard::LayersOfChunksOn(config.model, layout, at.pipeline)) {
    chunks.push_back({GroupLayers(range.end - range.begin, activations)});
    layers += range.end - range.begin;
  }
  chunks.back().has_head = at.pipeline == layout.pipeline - 1;
  const Elements elements = StageElements(config.model, layout, at, layers);
  const int64_t held = elements.all + elements.experts;
  const int64_t shard = layout.distributed_optimizer
                            ? elements.all / layout.data +
                                  elements.experts / layout.expert_data_size()
                            : held;
  const bool has_masters = activations.precision != Precision::kFp32;
  const PipelineShape shape = {
      .stages = layout.pipeline,
      .chunks = std::ssize(chunks),
      .micro_batches =
          config.global_batch_size / (layout.data * micro_batch_size)};
  const Activations formula(config, layout, activations, micro_batch_size);
  return {
      .parameter_bytes = kFloatBytes * held,
      .gradient_bytes =
          kFloatBytes *
          (GradientElements(config, layout, activations, at, elements) + shard),
      .optimizer_bytes = kFloatBytes * (has_masters ? 3 : 2) * shard,
      .activation_bytes =
          kFloatBytes *
          PeakActivations(formula, chunks, ScheduleOf(shape, at.pipeline))};
}

}  // namespace shardshift::trainer
