// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/optimizer.h"

#include <cmath>

#include "ckpt/core/status_macros.h"
#include "kernels/exact_sum.h"
#include "kernels/math.h"

namespace shardshift::trainer {

using reshard::Range;

Optimizer::Optimizer(const kernels::Kernels& kernels, Mesh& mesh,
                     Parameters& parameters, const OptimizerConfig& config,
                     Precision precision, std::optional<TiedGradient> tied)
    : kernels_(kernels),
      mesh_(mesh),
      parameters_(parameters),
      config_(config),
      precision_(precision),
      tied_(tied) {
  int64_t size = 0;
  for (const Parameters::Bucket& bucket : parameters.state().buckets) {
    shard_offsets_.push_back(size);
    size += bucket.owned.size();
  }
  is_reduced_.resize(shard_offsets_.size());
  grad_.resize(size, 0.0F);
  if (has_masters()) masters_.resize(size, 0.0F);
  exp_avg_.resize(size, 0.0F);
  exp_avg_sq_.resize(size, 0.0F);
  MakeSegments();
}

std::vector<Range> Optimizer::OwnedOf(int64_t index) const {
  const Range& whole = parameters_.state().ranges[index];
  std::vector<Range> parts;
  for (const Parameters::Bucket& bucket : parameters_.state().buckets) {
    if (reshard::Intersect(bucket.range, whole).empty()) continue;
    parts.push_back(reshard::Intersect(bucket.owned, whole));
  }
  return parts;
}

void Optimizer::MakeSegments() {
  const Parameters::State& state = parameters_.state();
  for (size_t i = 0; i < state.parameters.size(); ++i) {
    const reshard::Parameter& parameter = state.parameters[i];
    for (const Range& part : OwnedOf(static_cast<int64_t>(i))) {
      if (part.empty()) continue;
      segments_.push_back({.buffer_offset = part.begin,
                           .shard_offset = ShardOffset(part.begin),
                           .size = part.size(),
                           .decays = parameter.shape.size() > 1,
                           .counted = Counts(parameter, part)});
    }
  }
}

Communicator& Optimizer::ReplicasOf(const Range& range) {
  return parameters_.state().IsOfExperts(range) ? *mesh_.expert_data()
                                                : mesh_.data();
}

// Every logical element once: replicas on their first rank, a tied matrix on
// the first stage.
bool Optimizer::Counts(const reshard::Parameter& parameter,
                       const Range& range) const {
  const bool of_experts = parameters_.state().IsOfExperts(range);
  const int64_t data = of_experts ? mesh_.expert_at().data : mesh_.at().data;
  const int64_t tensor =
      of_experts ? mesh_.expert_at().tensor : mesh_.at().tensor;
  if (!mesh_.layout().distributed_optimizer && data != 0) return false;
  if (parameter.is_copy) return false;
  return parameter.split != reshard::Split::kReplicated || tensor == 0;
}

int64_t Optimizer::ShardOffset(int64_t buffer_offset) const {
  const std::vector<Parameters::Bucket>& buckets = parameters_.state().buckets;
  size_t i = 0;
  while (buffer_offset >= buckets[i].owned.end) ++i;
  return shard_offsets_[i] + buffer_offset - buckets[i].owned.begin;
}

absl::Status Optimizer::ReduceRange(const Gradients& gradients,
                                    const Range& range, const Range& owned,
                                    float* out) {
  const std::vector<TreeBuffer> nodes = gradients.Nodes(range);
  const TreeInput input{
      .leaves = gradients.groups(), .nodes = nodes, .count = range.size()};
  if (!mesh_.layout().distributed_optimizer) {
    return ReplicasOf(range).TreeAllReduce(input, out);
  }
  return ReplicasOf(range).TreeReduceScatter(input, owned.begin - range.begin,
                                             owned.end - range.begin, out);
}

// A tied embedding's use as output layer is summed over the batch and over the
// ranks on its own, and then added to its use as input.
absl::Status Optimizer::AddTiedUses(const Gradients& gradients) {
  const Range& whole = parameters_.state().ranges[tied_->parameter];
  for (const Range& part : OwnedOf(tied_->parameter)) {
    // Relative to the second sum. An empty part is reduced too: the peers'
    // may not be.
    const int64_t begin = part.empty() ? 0 : part.begin - whole.begin;
    const int64_t size = part.empty() ? 0 : part.size();
    const Range owned = {tied_->range.begin + begin,
                         tied_->range.begin + begin + size};
    std::vector<float> output_use(
        mesh_.layout().distributed_optimizer ? size : tied_->range.size());
    SS_RETURN_IF_ERROR(
        ReduceRange(gradients, tied_->range, owned, output_use.data()));
    if (part.empty()) continue;
    float* input_use = grad_.data() + ShardOffset(part.begin);
    kernels_.add({.a = input_use,
                  .b = output_use.data(),
                  .count = size,
                  .out = input_use});
  }
  return absl::OkStatus();
}

// With several stages the first sums the use as input, the last the use as
// output. Their shards line up (Parameter::shared_embedding).
absl::Status Optimizer::ExchangeTiedShards() {
  Communicator& comm = *mesh_.embedding();
  const int peer = 1 - comm.rank();
  const Parameters::State& state = parameters_.state();
  for (size_t i = 0; i < state.parameters.size(); ++i) {
    if (!state.parameters[i].shared_embedding) continue;
    for (const Range& part : OwnedOf(static_cast<int64_t>(i))) {
      if (part.empty()) continue;
      const std::span<float> mine(grad_.data() + ShardOffset(part.begin),
                                  static_cast<size_t>(part.size()));
      std::vector<float> theirs(mine.size());
      SS_RETURN_IF_ERROR(comm.Send(peer, 0, std::as_bytes(mine)));
      SS_RETURN_IF_ERROR(
          comm.Recv(peer, 0, std::as_writable_bytes(std::span(theirs))));
      kernels_.add({.a = mine.data(),
                    .b = theirs.data(),
                    .count = part.size(),
                    .out = mine.data()});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<double> Optimizer::Norm() {
  kernels::ExactSumOfSquares sum;
  for (const Segment& segment : segments_) {
    if (!segment.counted) continue;
    sum.Add({grad_.data() + segment.shard_offset,
             static_cast<size_t>(segment.size)});
  }
  kernels::ExactSumOfSquares::Words words = sum.ToWords();
  SS_RETURN_IF_ERROR(mesh_.world().AllReduceSum(words));
  return std::sqrt(kernels::ExactSumOfSquares::FromWords(words).ToDouble());
}

absl::Status Optimizer::ReduceBucket(const Gradients& gradients, size_t index) {
  if (is_reduced_[index]) return absl::OkStatus();
  is_reduced_[index] = true;
  const Parameters::Bucket& bucket = parameters_.state().buckets[index];
  return ReduceRange(gradients, bucket.range, bucket.owned,
                     grad_.data() + shard_offsets_[index]);
}

absl::Status Optimizer::ReduceComplete(const Gradients& gradients) {
  const std::vector<Parameters::Bucket>& buckets = parameters_.state().buckets;
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (!gradients.IsComplete(buckets[i].range)) continue;
    SS_RETURN_IF_ERROR(ReduceBucket(gradients, i));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> Optimizer::ReduceGradients(const Gradients& gradients,
                                                  float scale) {
  for (size_t i = 0; i < is_reduced_.size(); ++i) {
    SS_RETURN_IF_ERROR(ReduceBucket(gradients, i));
  }
  is_reduced_.assign(is_reduced_.size(), false);
  if (tied_.has_value()) SS_RETURN_IF_ERROR(AddTiedUses(gradients));
  if (mesh_.embedding() != nullptr) SS_RETURN_IF_ERROR(ExchangeTiedShards());
  kernels_.scale({.x = grad_.data(), .count = shard_size(), .factor = scale});
  return Norm();
}

absl::Status Optimizer::Update(double lr, int64_t step, double norm) {
  constexpr double kNormEpsilon = 1e-6;  // Megatron's clip_grads.py
  double grad_scale = 1.0;
  if (config_.clip_grad > 0) {
    const double clip = config_.clip_grad / (norm + kNormEpsilon);
    if (clip < 1.0) grad_scale = clip;
  }
  kernels::AdamWArgs args{
      .lr = lr,
      .beta1 = config_.beta1,
      .beta2 = config_.beta2,
      .eps = config_.eps,
      .bias_correction1 = 1.0 - kernels::Pow(config_.beta1, step),
      .bias_correction2 = 1.0 - kernels::Pow(config_.beta2, step),
      .grad_scale = grad_scale};
  for (const Segment& segment : segments_) {
    args.param = MasterOf(segment);
    args.grad = grad_.data() + segment.shard_offset;
    args.exp_avg = exp_avg_.data() + segment.shard_offset;
    args.exp_avg_sq = exp_avg_sq_.data() + segment.shard_offset;
    args.count = segment.size;
    args.weight_decay = segment.decays ? config_.weight_decay : 0.0;
    kernels_.adamw(args);
  }
  return WeightsFromMasters();
}

float* Optimizer::MasterOf(const Segment& segment) {
  return has_masters() ? masters_.data() + segment.shard_offset
                       : parameters_.values().data() + segment.buffer_offset;
}

absl::Status Optimizer::MastersFromWeights() {
  if (!has_masters()) return absl::OkStatus();
  for (const Segment& segment : segments_) {
    std::copy_n(parameters_.values().data() + segment.buffer_offset,
                segment.size, MasterOf(segment));
  }
  return WeightsFromMasters();
}

absl::Status Optimizer::WeightsFromMasters() {
  if (has_masters()) {
    for (const Segment& segment : segments_) {
      float* weights = parameters_.values().data() + segment.buffer_offset;
      std::copy_n(MasterOf(segment), segment.size, weights);
      RoundTo(precision_, kernels_, weights, segment.size);
    }
  }
  if (!mesh_.layout().distributed_optimizer) return absl::OkStatus();
  const auto span_of = [this](const Range& range) {
    return parameters_.values().subspan(range.begin, range.size());
  };
  for (const Parameters::Bucket& bucket : parameters_.state().buckets) {
    SS_RETURN_IF_ERROR(
        ReplicasOf(bucket.range)
            .AllGather(std::as_bytes(span_of(bucket.owned)),
                       std::as_writable_bytes(span_of(bucket.range))));
  }
  return absl::OkStatus();
}

std::span<const float> Optimizer::CommonMasters(int64_t index) const {
  if (!has_masters() || mesh_.layout().distributed_optimizer) return {};
  const Range& range = parameters_.state().ranges[index];
  return {masters_.data() + ShardOffset(range.begin),
          static_cast<size_t>(range.size())};
}

int64_t Optimizer::bytes() const {
  return static_cast<int64_t>(
      (masters_.size() + exp_avg_.size() + exp_avg_sq_.size()) * sizeof(float));
}

float* Optimizer::StateOf(const reshard::Piece& piece, int64_t role) {
  switch (role) {
    case 0:
      return has_masters() ? masters_.data() + ShardOffset(piece.offset)
                           : parameters_.values().data() + piece.offset;
    case 1:
      return exp_avg_.data() + ShardOffset(piece.offset);
    default:
      return exp_avg_sq_.data() + ShardOffset(piece.offset);
  }
}

}  // namespace shardshift::trainer
