// Token embedding, cut over the tensor-parallel ranks by vocabulary rows, plus
// learned positions if the model has them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_EMBEDDING_H_
#define SHARDSHIFT_TRAINER_LAYERS_EMBEDDING_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "trainer/layers/context.h"

namespace shardshift::trainer {

class Embedding {
 public:
  explicit Embedding(LayerContext& context);

  // y: [R, H] from batch.tokens. One all-reduce.
  absl::Status Forward(const MicroBatch& batch, float* y);

  // dy: [R, H]. Adds the gradients of both tables.
  void Backward(const float* dy, const MicroBatch& batch);

 private:
  LayerContext& context_;
  int64_t words_;
  std::optional<int64_t> positions_;
  int64_t rows_;       // of this rank, padding included
  int64_t row_begin_;  // vocabulary id of the first one
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_EMBEDDING_H_
