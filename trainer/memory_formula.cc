// SPDX-License-Identifier: Apache-2.0
#include "trainer/memory_formula.h"

#include "reshard/layout/stages.h"
#include "trainer/activation_formula.h"
#include "trainer/optim/sample_tree.h"

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

// Of a feed-forward block of any kind.
Elements MlpElements(const ModelConfig& model, const Layout& layout,
                     int64_t layer) {
  const int64_t h = model.hidden_size;
  const int64_t parts = model.swiglu ? 2 : 1;
  const auto matrices = [&](int64_t width) { return (parts + 1) * width * h; };
  Elements sum;
  if (!model.has_experts(layer)) {
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

Elements LayerElements(const ModelConfig& model, const Layout& layout,
                       int64_t layer) {
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
  return sum += MlpElements(model, layout, layer);
}

Elements StageElements(const ModelConfig& model, const Layout& layout,
                       const reshard::RankCoordinates& at) {
  const int64_t h = model.hidden_size;
  const bool is_first = at.pipeline == 0;
  const bool is_last = at.pipeline == layout.pipeline - 1;
  Elements sum;
  for (const reshard::LayerRange& range :
       reshard::LayersOfChunksOn(model, layout, at.pipeline)) {
    for (int64_t layer = range.begin; layer < range.end; ++layer) {
      sum += LayerElements(model, layout, layer);
    }
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
                             int64_t micro_batch_size, int64_t layer) {
  return kFloatBytes *
         LayerActivations(config, layout, activations, micro_batch_size, layer);
}

RankMemory MemoryByFormula(const RunConfig& config, const Layout& layout,
                           const ActivationOptions& activations,
                           int64_t micro_batch_size,
                           const reshard::RankCoordinates& at) {
  const Elements elements = StageElements(config.model, layout, at);
  const int64_t held = elements.all + elements.experts;
  const int64_t shard = layout.distributed_optimizer
                            ? elements.all / layout.data +
                                  elements.experts / layout.expert_data_size()
                            : held;
  const bool has_masters = activations.precision != Precision::kFp32;
  return {
      .parameter_bytes = kFloatBytes * held,
      .gradient_bytes =
          kFloatBytes *
          (GradientElements(config, layout, activations, at, elements) + shard),
      .optimizer_bytes = kFloatBytes * (has_masters ? 3 : 2) * shard,
      .activation_bytes =
          kFloatBytes * PeakActivations(config, layout, activations,
                                        micro_batch_size, at.pipeline)};
}

}  // namespace shardshift::trainer
