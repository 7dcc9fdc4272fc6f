// Linear layers cut over the tensor-parallel ranks; weights are [out, in],
// y = x W^T. Source: Megatron's layers.py; parallel-layout.md 4.1 and 4.2;
// order of sums: invariant-numerics.md 2.1 and 2.2. What "gathers" or "sums"
// communicates: sequence_shards.h. The inputs of a column-parallel layer and
// the outputs of a row-parallel one are H wide.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_PARALLEL_LINEAR_H_
#define SHARDSHIFT_TRAINER_LAYERS_PARALLEL_LINEAR_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "trainer/layers/context.h"

namespace shardshift::trainer {

// Each rank has out/TP of the outputs and all inputs.
class ColumnParallelLinear {
 public:
  struct Options {
    // Stacked blocks of rows, each cut on its own: 2 for [gate; up].
    int64_t parts = 1;
    // Where the weight gradient is summed, if not at the weight's own place.
    std::optional<int64_t> gradient_entry = std::nullopt;
  };

  // `name` is a parameter of the rank, "<layer>.weight" without the suffix; a
  // bias is used if there is one.
  ColumnParallelLinear(LayerContext& context, const std::string& name,
                       const Options& options);

  int64_t in() const { return in_; }
  int64_t out() const { return out_; }  // of this rank

  // x: [r, in]; y: [R, out]. `rows` is R. Gathers x.
  absl::Status Forward(const float* x, int64_t rows, float* y) const;

  // dy: [R, out]. Adds the gradients of weight and bias; dx: [r, in], summed
  // over the ranks. Gathers x, sums dx.
  absl::Status Backward(const float* x, const float* dy,
                        const MicroBatch& batch, float* dx);

 private:
  absl::Status AddGradients(const float* x, const float* dy,
                            const MicroBatch& batch);

  LayerContext& context_;
  int64_t weight_;
  std::optional<int64_t> bias_;
  int64_t gradient_entry_;
  int64_t in_;
  int64_t out_;
  int64_t parts_;
};

// Each rank has in/TP of the inputs and all outputs.
class RowParallelLinear {
 public:
  RowParallelLinear(LayerContext& context, const std::string& name);

  // x: [R, in of this rank]; y: [r, out], summed over the ranks, then the bias
  // added. `rows` is R. Sums y.
  absl::Status Forward(const float* x, int64_t rows, float* y) const;

  // dy: [r, out]; dx: [R, in of this rank]. Gathers dy.
  absl::Status Backward(const float* x, const float* dy,
                        const MicroBatch& batch, float* dx);

 private:
  LayerContext& context_;
  int64_t weight_;
  std::optional<int64_t> bias_;
  int64_t in_;
  int64_t out_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_PARALLEL_LINEAR_H_
