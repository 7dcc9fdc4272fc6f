// SPDX-License-Identifier: Apache-2.0
#include "trainer/rank_model.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ckpt/core/status_macros.h"
#include "reshard/layout/rank_state.h"
#include "trainer/buffer.h"
#include "trainer/layers/head_norms.h"

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
  const int64_t begin = state.num_elements;
  return TiedGradient{.parameter = words,
                      .range = {begin, begin + state.ranges[words].size()}};
}

GradientBuffer MakeGradients(const kernels::Kernels& kernels, const Mesh& mesh,
                             const RunConfig& config,
                             const Parameters::State& state,
                             const std::optional<TiedGradient>& tied,
                             const SequenceShards& shards) {
  std::vector<GradientBuffer::Entry> entries;
  for (size_t i = 0; i < state.parameters.size(); ++i) {
    // Vectors that tensor-parallel ranks share are sums over the positions a
    // rank has; a position table has no sum over positions.
    const reshard::Parameter& parameter = state.parameters[i];
    entries.push_back(
        {.range = state.ranges[i],
         .by_block = parameter.split == reshard::Split::kReplicated &&
                     parameter.shape.size() == 1 &&
                     !HeadNorms::Owns(parameter.name)});
  }
  int64_t num_elements = state.num_elements;
  if (tied.has_value()) {
    entries.push_back({.range = tied->range});
    num_elements = tied->range.end;
  }
  const int64_t groups = config.numerics.data_granularity;
  const int64_t per_rank = groups / mesh.layout().data;
  const int64_t first = mesh.at().data * per_rank;
  return GradientBuffer(
      kernels, std::move(entries), num_elements,
      SampleTree(groups, config.global_batch_size / groups, first,
                 first + per_rank),
      {.count = shards.blocks(), .are_shared_out = shards.is_cut()});
}

// The entry of the second sum follows those of the parameters.
std::optional<int64_t> TiedEntry(const std::optional<TiedGradient>& tied,
                                 const Parameters& parameters) {
  if (!tied.has_value()) return std::nullopt;
  return static_cast<int64_t>(parameters.state().parameters.size());
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
               .gradients = gradients_,
               .shards = shards_,
               .activations = activations,
               .dropout = {.seed = static_cast<uint64_t>(config.seed),
                           .attention = config.attention_dropout,
                           .hidden = config.hidden_dropout},
               .seq_length = config.seq_length,
               .tensor_granularity = config.numerics.tensor_granularity},
      stage_(context_, TiedEntry(tied_, parameters_)),
      optimizer_(kernels, mesh, parameters_, config.optimizer, tied_) {}

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
    mean =
        static_cast<float>(sum / static_cast<double>(config_.global_batch_size *
                                                     config_.seq_length));
  }
  Communicator& pipeline = mesh_.pipeline();
  SS_RETURN_IF_ERROR(pipeline.Broadcast(
      std::as_writable_bytes(std::span(&mean, 1)), pipeline.size() - 1));
  return mean;
}

absl::StatusOr<StepResult> RankModel::Step(const Batch& batch, double lr,
                                           int64_t step) {
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
  const auto tokens =
      static_cast<double>(config_.global_batch_size * config_.seq_length);
  StepResult result;
  SS_ASSIGN_OR_RETURN(result.loss, MeanLoss(sample_losses));
  SS_ASSIGN_OR_RETURN(
      const double norm,
      optimizer_.ReduceGradients(gradients_, static_cast<float>(1.0 / tokens)));
  result.grad_norm = static_cast<float>(norm);
  SS_RETURN_IF_ERROR(optimizer_.Update(lr, step, norm));
  return result;
}

int64_t RankModel::parameter_bytes() const {
  return parameters_.state().num_elements * static_cast<int64_t>(sizeof(float));
}

int64_t RankModel::gradient_bytes() const {
  return gradients_.bytes() +
         optimizer_.shard_size() * static_cast<int64_t>(sizeof(float));
}

int64_t RankModel::optimizer_bytes() const {
  constexpr int64_t kMoments = 2;
  return kMoments * optimizer_.shard_size() *
         static_cast<int64_t>(sizeof(float));
}

}  // namespace shardshift::trainer
