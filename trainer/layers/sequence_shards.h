// Which rows of a micro-batch a tensor-parallel rank has between the blocks of
// a layer, and how they go into a block and come out of it: the one place that
// knows of sequence parallelism. Source: Korthikanti et al. 2022;
// parallel-layout.md 4.3 and 4.4; order of sums: invariant-numerics.md 2.1.
//
// Without it a rank has all R rows, a block needs nothing to begin with, and
// ends with an all-reduce. With it a rank has one block of positions of every
// sample, r = R / TP rows; they are gathered before a block, and what the ranks
// computed of it is reduced and scattered. Sums are the same trees either way.
//
// Gathered rows are not kept for the backward pass but gathered again, as
// Megatron does: keeping them would cost two buffers of R rows a layer, and
// with them what sequence parallelism saves.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_SEQUENCE_SHARDS_H_
#define SHARDSHIFT_TRAINER_LAYERS_SEQUENCE_SHARDS_H_

#include <cstdint>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/buffer.h"
#include "trainer/comm/communicator.h"

namespace shardshift::trainer {

class SequenceShards {
 public:
  struct Shape {
    int64_t seq_length = 0;          // S
    int64_t hidden = 0;              // H
    int64_t tensor_granularity = 0;  // Gt
  };

  // All rows of a micro-batch: those of the rank itself, or gathered ones.
  class WholeRows {
   public:
    explicit WholeRows(const float* rows) : rows_(rows) {}
    explicit WholeRows(Buffer rows)
        : gathered_(std::move(rows)), rows_(gathered_.data()) {}

    const float* data() const { return rows_; }

   private:
    Buffer gathered_;
    const float* rows_;
  };

  // `tensor` outlives this. On one rank nothing is ever cut.
  // REQUIRES: Gt a multiple of the ranks and a divisor of S.
  SequenceShards(Communicator& tensor, bool sequence_parallel,
                 const Shape& shape);

  bool is_cut() const { return is_cut_; }
  // Positions of every sample that this rank has, and the first of them.
  int64_t positions() const { return positions_; }
  int64_t first_position() const { return first_position_; }
  // Of the Gt blocks of positions, those that lie in them.
  int64_t blocks() const { return blocks_; }
  // Rows that this rank has of `rows` rows of whole samples.
  int64_t rows(int64_t rows) const {
    return rows / shape_.seq_length * positions_;
  }

  // x: [r, H] of each rank; the result: [R, H]. One all-gather, or none; x
  // lives as long as the result. `rows` is R.
  absl::StatusOr<WholeRows> Gather(const float* x, int64_t rows) const;

  // `compute` fills [R, H] with what this rank's leaves add; sum: [r, H], the
  // rank's rows of the sum over all ranks. One all-reduce or reduce-scatter.
  absl::Status Sum(int64_t rows,
                   absl::FunctionRef<void(float* partial)> compute,
                   float* sum) const;

 private:
  // Copies between the order of samples, [b, S, H], and that of ranks,
  // [TP, b, S / TP, H].
  enum class Order { kBySample, kByRank };
  Buffer Reorder(Buffer rows, Order to) const;

  Communicator& tensor_;
  bool is_cut_;
  Shape shape_;
  int64_t leaves_per_rank_;
  int64_t positions_;
  int64_t first_position_;
  int64_t blocks_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_SEQUENCE_SHARDS_H_
