// SPDX-License-Identifier: Apache-2.0
#include "trainer/rank_model.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "ckpt/core/status_macros.h"
#include "reshard/layout/rank_state.h"
#include "trainer/buffer.h"
#include "trainer/layers/head_norms.h"
#include "trainer/layers/replicated_linear.h"

namespace shardshift::trainer {
namespace {

// With one stage a tied embedding is one parameter with two uses, which are
// summed apart, as they are where two stages hold it.
std::optional<TiedGradient> FindTied(const RunConfig& config, const Mesh& mesh,
                                     const Parameters& parameters) {
  if (config.model.untie_embeddings_and_output_weights ||
      mesh.layout().pipeline > 1) {
    return std::nullopt;
  }
  const int64_t words = parameters.Find("embedding.word.weight").value();
  const Parameters::State& state = parameters.state();
  // Before the first parameter.
  return TiedGradient{.parameter = words,
                      .range = {-state.ranges[words].size(), 0}};
}

// The tree over the samples of a data-parallel rank.
SampleTree TreeOf(const RunConfig& config, const reshard::Layout& layout,
                  int64_t data_rank) {
  const int64_t groups = config.numerics.data_granularity;
  const int64_t per_rank = groups / layout.data;
  const int64_t first = data_rank * per_rank;
  return SampleTree(groups, config.global_batch_size / groups, first,
                    first + per_rank);
}

// What tensor-parallel ranks share is a sum over the positions a rank has; but
// a position table has no sum over positions, and norms of heads are summed by
// heads.
bool IsSummedByBlock(const reshard::Parameter& parameter) {
  if (parameter.split != reshard::Split::kReplicated) return false;
  return ReplicatedLinear::Owns(parameter.name) ||
         (parameter.shape.size() == 1 && !HeadNorms::Owns(parameter.name));
}

// A buffer for each data-parallel rank whose samples come to the experts here.
std::vector<GradientBuffer> MakeExpertGradients(
    const kernels::Kernels& kernels, const Mesh& mesh, const RunConfig& config,
    const Parameters::State& state) {
  std::vector<GradientBuffer> buffers;
  if (state.experts_begin == state.num_elements) return buffers;
  std::vector<GradientBuffer::Entry> entries(state.parameters.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    if (state.IsOfExperts(state.ranges[i])) entries[i].range = state.ranges[i];
  }
  const reshard::Layout& layout = mesh.layout();
  const int64_t sources = layout.expert_copy_size() / layout.tensor;
  for (int64_t source = 0; source < sources; ++source) {
    buffers.emplace_back(
        kernels, entries,
        reshard::Range{state.experts_begin, state.num_elements},
        TreeOf(config, layout, mesh.expert_at().data * sources + source),
        GradientBuffer::Blocks{});
  }
  return buffers;
}

Gradients MakeGradients(const kernels::Kernels& kernels, const Mesh& mesh,
                        const RunConfig& config, const Parameters::State& state,
                        const std::optional<TiedGradient>& tied,
                        const SequenceShards& shards) {
  std::vector<GradientBuffer::Entry> entries(state.parameters.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    if (state.IsOfExperts(state.ranges[i])) continue;
    entries[i] = {.range = state.ranges[i],
                  .by_block = IsSummedByBlock(state.parameters[i])};
  }
  if (tied.has_value()) entries.push_back({.range = tied->range});
  return Gradients(
      GradientBuffer(
          kernels, std::move(entries),
          {tied.has_value() ? tied->range.begin : 0, state.experts_begin},
          TreeOf(config, mesh.layout(), mesh.at().data),
          {.count = shards.blocks(), .are_shared_out = shards.is_cut()}),
      MakeExpertGradients(kernels, mesh, config, state), state.experts_begin);
}

// The entry of the second sum follows those of the parameters.
std::optional<int64_t> TiedEntry(const std::optional<TiedGradient>& tied,
                                 const Parameters& parameters) {
  if (!tied.has_value()) return std::nullopt;
  return static_cast<int64_t>(parameters.state().parameters.size());
}

// What the gradient of a token's loss begins with. A scale of the mean loss is
// divided by the tokens of the batch, as far as a power of two can be; without
// one the gradient is that of the sum.
float TokenGradient(std::optional<double> loss_scale, int64_t tokens) {
  if (!loss_scale.has_value()) return 1.0F;
  return static_cast<float>(
      std::ldexp(*loss_scale, -std::ilogb(static_cast<double>(tokens))));
}

}  // namespace

RankModel::RankModel(const kernels::Kernels& kernels, Mesh& mesh,
                     const RunConfig& config,
                     const ActivationOptions& activations)
    : mesh_(mesh),
      config_(config),
      parameters_(reshard::MakeRankState(config.model, mesh.layout(),
                                         mesh.world().rank())),
      tied_(FindTied(config, mesh, parameters_)),
      shards_(mesh.tensor(), activations.sequence_parallel,
              {.seq_length = config.seq_length,
               .hidden = config.model.hidden_size,
               .tensor_granularity = config.numerics.tensor_granularity}),
      gradients_(MakeGradients(kernels, mesh, config, parameters_.state(),
                               tied_, shards_)),
      context_{.kernels = kernels,
               .model = config.model,
               .mesh = mesh,
               .parameters = parameters_,
               .all_gradients = gradients_,
               .gradients = gradients_.shared(),
               .shards = shards_,
               .activations = activations,
               .dropout = {.seed = static_cast<uint64_t>(config.seed),
                           .attention = config.attention_dropout,
                           .hidden = config.hidden_dropout},
               .moe_loss = config.moe_loss,
               .batch_load = {},
               .seq_length = config.seq_length,
               .batch_tokens = config.global_batch_size * config.seq_length,
               .tensor_granularity = config.numerics.tensor_granularity},
      stage_(context_, TiedEntry(tied_, parameters_)),
      optimizer_(kernels, mesh, parameters_, config.optimizer,
                 activations.precision, tied_) {}

// All samples' losses, added in the order of the batch, are known on the last
// stage, and from there on every rank.
absl::StatusOr<float> RankModel::MeanLoss(
    std::span<const double> sample_losses) {
  float mean = 0;
  if (mesh_.is_last_stage()) {
    std::vector<double> all(config_.global_batch_size);
    SS_RETURN_IF_ERROR(mesh_.data().AllGather(
        std::as_bytes(sample_losses), std::as_writable_bytes(std::span(all))));
    double sum = 0;
    for (const double loss : all) sum += loss;
    mean = static_cast<float>(sum / static_cast<double>(context_.batch_tokens));
  }
  Communicator& pipeline = mesh_.pipeline();
  SS_RETURN_IF_ERROR(pipeline.Broadcast(
      std::as_writable_bytes(std::span(&mean, 1)), pipeline.size() - 1));
  return mean;
}

absl::Status RankModel::CountLoad(const Batch& batch) {
  BatchLoad& load = context_.batch_load;
  load = {.is_counting = true,
          .tokens = std::vector<int64_t>(config_.model.num_experts, 0)};
  SS_RETURN_IF_ERROR(stage_.RunLayersForward(batch));
  load.is_counting = false;
  return mesh_.world().AllReduceSum(load.tokens);
}

absl::StatusOr<StepResult> RankModel::Step(const Batch& batch, double lr,
                                           int64_t step,
                                           std::optional<double> loss_scale) {
  context_.token_gradient = TokenGradient(loss_scale, context_.batch_tokens);
  if (config_.moe_loss.counts_whole_batch()) {
    SS_RETURN_IF_ERROR(CountLoad(batch));
  }
  std::vector<double> sample_losses(batch.num_samples);
  ResetThreadBufferPeak();
  const int64_t before = ThreadBufferUse().live_bytes;
  SS_RETURN_IF_ERROR(
      stage_.RunBatch(batch, sample_losses, [this]() -> absl::Status {
        SS_RETURN_IF_ERROR(gradients_.SumBlocks(mesh_.tensor()));
        return optimizer_.ReduceComplete(gradients_);
      }));
  activation_bytes_ =
      std::max(activation_bytes_, ThreadBufferUse().peak_bytes - before);
  const auto scale =
      static_cast<float>(1.0 / static_cast<double>(context_.batch_tokens)) /
      context_.token_gradient;
  StepResult result;
  SS_ASSIGN_OR_RETURN(result.loss, MeanLoss(sample_losses));
  SS_ASSIGN_OR_RETURN(const double norm,
                      optimizer_.ReduceGradients(gradients_, scale));
  result.grad_norm = static_cast<float>(norm);
  result.is_updated = std::isfinite(norm);
  if (result.is_updated) SS_RETURN_IF_ERROR(optimizer_.Update(lr, step, norm));
  return result;
}

int64_t RankModel::parameter_bytes() const {
  return parameters_.state().num_elements * static_cast<int64_t>(sizeof(float));
}

int64_t RankModel::gradient_bytes() const {
  return gradients_.bytes() +
         optimizer_.shard_size() * static_cast<int64_t>(sizeof(float));
}

int64_t RankModel::optimizer_bytes() const { return optimizer_.bytes(); }

}  // namespace shardshift::trainer
