// SPDX-License-Identifier: Apache-2.0
#include "trainer/pipeline/model_chunk.h"

#include <utility>

#include "ckpt/core/status_macros.h"

namespace shardshift::trainer {

ModelChunk::ModelChunk(LayerContext& context, const Role& role,
                       const RopeTable& rope, std::optional<int64_t> tied_entry)
    : context_(context) {
  if (role.has_embedding) embedding_.emplace(context);
  for (int64_t layer = role.layers.begin; layer < role.layers.end; ++layer) {
    layers_.emplace_back(context, layer, rope);
  }
  if (role.has_head) head_.emplace(context, tied_entry);
}

absl::Status ModelChunk::Forward(Buffer& x, Cache& cache,
                                 std::span<double> sample_losses) {
  const int64_t rows = cache.batch.num_samples * context_.seq_length;
  if (embedding_.has_value()) {
    SS_RETURN_IF_ERROR(embedding_->Forward(cache.batch, x.data()));
  }
  cache.layers.resize(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    Buffer y;
    SS_RETURN_IF_ERROR(
        layers_[i].Forward(std::move(x), rows, y, cache.layers[i]));
    x = std::move(y);
  }
  if (!head_.has_value()) return absl::OkStatus();
  cache.head_in = std::move(x);
  return head_->Forward(cache.head_in.data(), cache.batch, cache.head,
                        sample_losses);
}

absl::Status ModelChunk::Backward(Buffer& dx, Cache& cache) {
  if (head_.has_value()) {
    SS_RETURN_IF_ERROR(head_->Backward(cache.head_in.data(), cache.batch,
                                       cache.head, dx.data()));
  }
  for (size_t i = layers_.size(); i-- > 0;) {
    SS_RETURN_IF_ERROR(layers_[i].Backward(cache.layers[i], cache.batch, dx));
  }
  if (embedding_.has_value()) embedding_->Backward(dx.data(), cache.batch);
  return absl::OkStatus();
}

}  // namespace shardshift::trainer
