// SPDX-License-Identifier: Apache-2.0
#include "trainer/activation_formula.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "kernels/tree.h"
#include "reshard/layout/stages.h"
#include "trainer/layers/layer_stack.h"
#include "trainer/pipeline/schedule.h"

namespace shardshift::trainer {
namespace {

using reshard::Layout;
using reshard::ModelConfig;

// A model chunk of the stage.
struct Chunk {
  int64_t first_layer = 0;
  std::vector<LayerGroup> groups = {};  // counted from it
  bool has_head = false;
};

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
  int64_t Layer(int64_t layer) const {
    return 4 * Stream() + 2 * Stats() + rows_ * (Qkv() + Context()) +
           HeadNorms() + Probs() + Mlp(layer);
  }

  // All layers of a group.
  int64_t LayersOf(const Chunk& chunk, const LayerGroup& group) const {
    int64_t sum = 0;
    for (int64_t layer = group.begin; layer < group.end; ++layer) {
      sum += Layer(chunk.first_layer + layer);
    }
    return sum;
  }

  // What a chunk keeps of its layers.
  int64_t KeptOf(const Chunk& chunk) const {
    int64_t kept = 0;
    for (const LayerGroup& group : chunk.groups) {
      kept += group.is_recomputed ? Stream() : LayersOf(chunk, group);
    }
    return kept;
  }

  // The output layer: its input, before and after the norm; logits; the largest
  // logit, sum of exponentials and target's logit of each row.
  int64_t Head() const {
    return 2 * Stream() + Stats() + rows_ * (Logits() + 3);
  }

  // Scratch of a forward pass: an output, whole rows.
  int64_t ForwardScratch(const Chunk& chunk) const {
    int64_t block = Whole();
    for (const LayerGroup& group : chunk.groups) {
      for (int64_t layer = group.begin; layer < group.end; ++layer) {
        block = std::max(block, MixtureScratch(chunk.first_layer + layer));
      }
    }
    return Stream() + block;
  }

  // Scratch of the backward pass of the output layer: two gradients.
  int64_t HeadScratch() const { return 2 * Stream() + Whole(); }

  // Scratch of the backward pass of a group of layers: the gradient of an
  // output and of a block's input, and what the largest block needs.
  int64_t BackwardScratch(const Chunk& chunk, const LayerGroup& group) const {
    int64_t block = rows_ * (Context() + model_.qkv_width() / tensor_) +
                    std::max(Whole(), AttentionScratch());
    for (int64_t layer = group.begin; layer < group.end; ++layer) {
      block = std::max(block, MlpScratch(chunk.first_layer + layer));
    }
    // With dropout, what of the gradient goes into the block.
    return (drops_hidden_ ? 3 : 2) * Stream() + block;
  }

  // The most that the backward pass of a chunk takes beyond what is kept
  // before it.
  int64_t BackwardPeak(const Chunk& chunk) const {
    int64_t peak = 0;
    int64_t freed = 0;
    for (auto group = chunk.groups.rbegin(); group != chunk.groups.rend();
         ++group) {
      const int64_t whole = LayersOf(chunk, *group);
      const int64_t kept = group->is_recomputed ? Stream() : whole;
      peak =
          std::max(peak, whole - kept - freed + BackwardScratch(chunk, *group));
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
  int64_t Mlp(int64_t layer) const {
    if (!model_.has_experts(layer)) return rows_ * (Parts() + 1) * Ffn();
    const int64_t shared = model_.moe_shared_expert_intermediate_size;
    return OwnRows() * model_.num_experts + Slots() +
           Slots() * model_.hidden_size +
           ExpertRows() * (model_.hidden_size + (Parts() + 1) * ExpertWidth()) +
           rows_ * (Parts() + 1) * shared / tensor_ +
           (model_.moe_shared_expert_gate ? Stream() + OwnRows() : 0);
  }
  int64_t MlpScratch(int64_t layer) const {
    if (!model_.has_experts(layer))
      return rows_ * (Parts() + 1) * Ffn() + Whole();
    // Gradients of what the experts put out and take in; then either that of
    // their first product, or rows on their way home.
    const int64_t h = model_.hidden_size;
    return Slots() * (h + 1) + 2 * ExpertRows() * h +
           std::max(ExpertRows() * Parts() * ExpertWidth(),
                    ExpertRows() * h + 2 * Slots() * h);
  }
  // What the experts put out, in their order and in that of ranks, and summed.
  int64_t MixtureScratch(int64_t layer) const {
    if (!model_.has_experts(layer)) return 0;
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

// The most elements of activations while the stage goes through a batch.
int64_t PeakOf(const Activations& formula, const std::vector<Chunk>& chunks,
               const std::vector<PipelineStep>& steps) {
  int64_t kept = 0;
  int64_t peak = 0;
  for (const PipelineStep& step : steps) {
    const Chunk& chunk = chunks[step.chunk];
    const int64_t layers = formula.KeptOf(chunk);
    const int64_t head = chunk.has_head ? formula.Head() : 0;
    if (step.kind == PipelineStep::Kind::kForward) {
      kept += layers + head;
      peak = std::max(peak, kept + formula.ForwardScratch(chunk));
      continue;
    }
    if (chunk.has_head) peak = std::max(peak, kept + formula.HeadScratch());
    kept -= head;
    peak = std::max(peak, kept + formula.BackwardPeak(chunk));
    kept -= layers;
  }
  return peak;
}

}  // namespace

int64_t NormSize(const ModelConfig& model, int64_t count) {
  return model.normalization == reshard::Normalization::kRmsNorm ? count
                                                                 : 2 * count;
}

int64_t LayerActivations(const RunConfig& config, const Layout& layout,
                         const ActivationOptions& options,
                         int64_t micro_batch_size, int64_t layer) {
  return Activations(config, layout, options, micro_batch_size).Layer(layer);
}

int64_t PeakActivations(const RunConfig& config, const Layout& layout,
                        const ActivationOptions& options,
                        int64_t micro_batch_size, int64_t stage) {
  std::vector<Chunk> chunks;
  for (const reshard::LayerRange& range :
       reshard::LayersOfChunksOn(config.model, layout, stage)) {
    chunks.push_back({.first_layer = range.begin,
                      .groups = GroupLayers(range.end - range.begin, options)});
  }
  chunks.back().has_head = stage == layout.pipeline - 1;
  const PipelineShape shape = {
      .stages = layout.pipeline,
      .chunks = std::ssize(chunks),
      .micro_batches =
          config.global_batch_size / (layout.data * micro_batch_size)};
  return PeakOf(Activations(config, layout, options, micro_batch_size), chunks,
                ScheduleOf(shape, stage));
}

}  // namespace shardshift::trainer
