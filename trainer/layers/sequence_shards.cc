// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/sequence_shards.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "ckpt/core/status_macros.h"

namespace shardshift::trainer {

SequenceShards::SequenceShards(Communicator& tensor, bool sequence_parallel,
                               const Shape& shape)
    : tensor_(tensor),
      is_cut_(sequence_parallel && tensor.size() > 1),
      shape_(shape),
      leaves_per_rank_(shape.tensor_granularity / tensor.size()),
      positions_(is_cut_ ? shape.seq_length / tensor.size() : shape.seq_length),
      first_position_(is_cut_ ? tensor.rank() * positions_ : 0),
      blocks_(is_cut_ ? leaves_per_rank_ : shape.tensor_granularity) {}

Buffer SequenceShards::Reorder(Buffer rows, Order to) const {
  const int64_t samples = rows.size() / (shape_.seq_length * shape_.hidden);
  if (samples == 1) return rows;
  const int64_t run = positions_ * shape_.hidden;
  const int64_t ranks = tensor_.size();
  Buffer ordered(rows.size());
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (int64_t sample = 0; sample < samples; ++sample) {
      const int64_t by_rank = (rank * samples + sample) * run;
      const int64_t by_sample = (sample * ranks + rank) * run;
      const bool to_samples = to == Order::kBySample;
      std::copy_n(rows.data() + (to_samples ? by_rank : by_sample), run,
                  ordered.data() + (to_samples ? by_sample : by_rank));
    }
  }
  return ordered;
}

absl::StatusOr<SequenceShards::WholeRows> SequenceShards::Gather(
    const float* x, int64_t rows) const {
  if (!is_cut_) return WholeRows(x);
  const auto size = static_cast<size_t>(this->rows(rows) * shape_.hidden);
  Buffer gathered(rows * shape_.hidden);
  SS_RETURN_IF_ERROR(
      tensor_.AllGather(std::as_bytes(std::span(x, size)),
                        std::as_writable_bytes(gathered.span())));
  return WholeRows(Reorder(std::move(gathered), Order::kBySample));
}

absl::Status SequenceShards::Sum(
    int64_t rows, absl::FunctionRef<void(float* partial)> compute,
    float* sum) const {
  const int64_t size = rows * shape_.hidden;
  if (!is_cut_) {
    compute(sum);
    return tensor_.TreeAllReduceInPlace({sum, static_cast<size_t>(size)},
                                        leaves_per_rank_);
  }
  Buffer partial(size);
  compute(partial.data());
  partial = Reorder(std::move(partial), Order::kByRank);
  const int64_t rank = tensor_.rank();
  const TreeBuffer mine = {
      {rank * leaves_per_rank_, (rank + 1) * leaves_per_rank_}, partial.data()};
  const int64_t share = size / tensor_.size();
  return tensor_.TreeReduceScatter(
      {.leaves = shape_.tensor_granularity, .nodes = {&mine, 1}, .count = size},
      rank * share, (rank + 1) * share, sum);
}

}  // namespace shardshift::trainer
