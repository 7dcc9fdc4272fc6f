// Token embedding, cut over the tensor-parallel ranks by vocabulary rows, plus
// learned positions if the model has them, and dropout.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_EMBEDDING_H_
#define SHARDSHIFT_TRAINER_LAYERS_EMBEDDING_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "trainer/layers/context.h"
#include "trainer/layers/dropout.h"

namespace shardshift::trainer {

class Embedding {
 public:
  explicit Embedding(LayerContext& context);

  // y: [r, H] from batch.tokens. Sums y.
  absl::Status Forward(const MicroBatch& batch, float* y);

  // dy: [r, H]. Adds the gradients of both tables. Gathers dy: tokens of any
  // position may have their rows here.
  absl::Status Backward(const float* dy, const MicroBatch& batch);

 private:
  void AddPositions(const MicroBatch& batch, float* y) const;

  LayerContext& context_;
  int64_t words_;
  std::optional<int64_t> positions_;
  HiddenDropout dropout_;
  int64_t rows_;       // of this rank, padding included
  int64_t row_begin_;  // vocabulary id of the first one
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_EMBEDDING_H_
