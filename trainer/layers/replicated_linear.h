// A linear layer without bias that every rank has whole and applies to the rows
// it has: the router, and the gate of a shared expert. y = x W^T, W: [out, H].
// The gradient is summed by blocks of positions (invariant-numerics.md 2.3).
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_REPLICATED_LINEAR_H_
#define SHARDSHIFT_TRAINER_LAYERS_REPLICATED_LINEAR_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "trainer/layers/context.h"

namespace shardshift::trainer {

class ReplicatedLinear {
 public:
  // Whether a parameter of a rank, by name, is the weight of one.
  static bool Owns(absl::string_view parameter);

  // `name` is "<layer>.weight" without the suffix.
  ReplicatedLinear(LayerContext& context, const std::string& name);

  // x: [rows, H]; y: [rows, out].
  void Forward(const float* x, int64_t rows, float* y) const;

  // dy: [r, out]; adds the gradient of the weight; dx: [r, H].
  void Backward(const float* x, const float* dy, const MicroBatch& batch,
                float* dx);

 private:
  LayerContext& context_;
  int64_t weight_;
  int64_t in_;
  int64_t out_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_REPLICATED_LINEAR_H_
