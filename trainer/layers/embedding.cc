// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/embedding.h"

#include <algorithm>

#include "ckpt/core/status_macros.h"

namespace shardshift::trainer {

Embedding::Embedding(LayerContext& context)
    : context_(context),
      words_(context.parameters.Find("embedding.word.weight").value()),
      positions_(context.parameters.Find("embedding.position.weight")),
      rows_(context.model.padded_vocab_size / context.mesh.layout().tensor),
      row_begin_(context.mesh.at().tensor * rows_) {}

absl::Status Embedding::Forward(const MicroBatch& batch, float* y) {
  const int64_t hidden = context_.model.hidden_size;
  const int64_t rows = batch.num_samples * context_.seq_length;
  context_.kernels.embedding_lookup({.ids = batch.tokens.data(),
                                     .count = rows,
                                     .table = context_.parameters.data(words_),
                                     .row_begin = row_begin_,
                                     .row_end = row_begin_ + rows_,
                                     .width = hidden,
                                     .out = y});
  SS_RETURN_IF_ERROR(context_.mesh.tensor().TreeAllReduceInPlace(
      {y, static_cast<size_t>(rows * hidden)}, context_.leaves_per_rank()));
  if (!positions_.has_value()) return absl::OkStatus();
  const int64_t count = context_.seq_length * hidden;
  for (int64_t i = 0; i < batch.num_samples; ++i) {
    float* sample = y + i * count;
    context_.kernels.add({.a = sample,
                          .b = context_.parameters.data(*positions_),
                          .count = count,
                          .out = sample});
  }
  return absl::OkStatus();
}

void Embedding::Backward(const float* dy, const MicroBatch& batch) {
  const int64_t hidden = context_.model.hidden_size;
  const int64_t count = context_.seq_length * hidden;
  for (int64_t i = 0; i < batch.num_samples; ++i) {
    const int64_t sample = batch.first_sample + i;
    const auto words = context_.gradients.Open(words_, sample);
    if (!words.accumulate) std::fill_n(words.data, rows_ * hidden, 0.0F);
    context_.kernels.embedding_grad(
        {.ids = batch.tokens.data() + i * context_.seq_length,
         .count = context_.seq_length,
         .dx = dy + i * count,
         .row_begin = row_begin_,
         .row_end = row_begin_ + rows_,
         .width = hidden,
         .acc = words.data});
    context_.gradients.Close(words_, sample);
    if (!positions_.has_value()) continue;
    const auto table = context_.gradients.Open(*positions_, sample);
    if (!table.accumulate) {
      std::fill_n(table.data, context_.model.max_position_embeddings * hidden,
                  0.0F);
    }
    context_.kernels.add({.a = table.data,
                          .b = dy + i * count,
                          .count = count,
                          .out = table.data});
    context_.gradients.Close(*positions_, sample);
  }
}

}  // namespace shardshift::trainer
