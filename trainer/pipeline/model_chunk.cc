// SPDX-License-Identifier: Apache-2.0
#include "trainer/pipeline/model_chunk.h"

#include <utility>

#include "ckpt/core/status_macros.h"

namespace shardshift::trainer {

ModelChunk::ModelChunk(LayerContext& context, const Role& role,
                       const RopeTable& rope, std::optional<int64_t> tied_entry)
    : layers_(context, role.layers, rope) {
  if (role.has_embedding) embedding_.emplace(context);
  if (role.has_head) head_.emplace(context, tied_entry);
}

absl::Status ModelChunk::ForwardLayers(Buffer& x, Cache& cache) {
  if (embedding_.has_value()) {
    SS_RETURN_IF_ERROR(embedding_->Forward(cache.batch, x.data()));
  }
  return layers_.Forward(cache.batch, x, cache.layers);
}

absl::Status ModelChunk::Forward(Buffer& x, Cache& cache,
                                 std::span<double> sample_losses) {
  SS_RETURN_IF_ERROR(ForwardLayers(x, cache));
  if (!head_.has_value()) return absl::OkStatus();
  cache.head_in = std::move(x);
  return head_->Forward(cache.head_in.data(), cache.batch, cache.head,
                        sample_losses);
}

absl::Status ModelChunk::Backward(Buffer& dx, Cache& cache) {
  if (head_.has_value()) {
    SS_RETURN_IF_ERROR(head_->Backward(cache.head_in.data(), cache.batch,
                                       cache.head, dx.data()));
    cache.head_in = {};
    cache.head = {};
  }
  SS_RETURN_IF_ERROR(layers_.Backward(cache.batch, dx, cache.layers));
  return embedding_.has_value() ? embedding_->Backward(dx.data(), cache.batch)
                                : absl::OkStatus();
}

}  // namespace shardshift::trainer
