// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/embedding.h"

#include <algorithm>

#include "ckpt/core/status_macros.h"

namespace shardshift::trainer {

Embedding::Embedding(LayerContext& context)
    : context_(context),
      words_(context.parameters.Find("embedding.word.weight").value()),
      positions_(context.parameters.Find("embedding.position.weight")),
      dropout_(context, "embedding"),
      rows_(context.model.padded_vocab_size / context.mesh.layout().tensor),
      row_begin_(context.mesh.at().tensor * rows_) {}

absl::Status Embedding::Forward(const MicroBatch& batch, float* y) {
  const int64_t hidden = context_.model.hidden_size;
  const int64_t rows = batch.num_samples * context_.seq_length;
  SS_RETURN_IF_ERROR(context_.shards.Sum(
      rows,
      [&](float* owned) {
        context_.kernels.embedding_lookup(
            {.ids = batch.tokens.data(),
             .count = rows,
             .table = context_.parameters.data(words_),
             .row_begin = row_begin_,
             .row_end = row_begin_ + rows_,
             .width = hidden,
             .out = owned});
      },
      y));
  if (positions_.has_value()) AddPositions(batch, y);
  if (dropout_.is_on()) dropout_.Apply(batch, y, y);
  return absl::OkStatus();
}

void Embedding::AddPositions(const MicroBatch& batch, float* y) const {
  const int64_t hidden = context_.model.hidden_size;
  const float* positions = context_.parameters.data(*positions_) +
                           context_.shards.first_position() * hidden;
  const int64_t count = context_.shards.positions() * hidden;
  for (int64_t i = 0; i < batch.num_samples; ++i) {
    float* sample = y + i * count;
    context_.kernels.add(
        {.a = sample, .b = positions, .count = count, .out = sample});
  }
  context_.Round(y, batch.num_samples * count);
}

absl::Status Embedding::Backward(const float* dy, const MicroBatch& batch) {
  const int64_t hidden = context_.model.hidden_size;
  const int64_t count = context_.seq_length * hidden;
  const int64_t rows = batch.num_samples * context_.seq_length;
  Buffer behind_dropout;
  if (dropout_.is_on()) {
    behind_dropout = Buffer(context_.shards.rows(rows) * hidden);
    dropout_.Apply(batch, dy, behind_dropout.data());
    dy = behind_dropout.data();
  }
  SS_ASSIGN_OR_RETURN(const SequenceShards::WholeRows whole,
                      context_.shards.Gather(dy, rows));
  for (int64_t i = 0; i < batch.num_samples; ++i) {
    const int64_t sample = batch.first_sample + i;
    const auto words = context_.gradients.Open(words_, sample);
    if (!words.accumulate) std::fill_n(words.data, rows_ * hidden, 0.0F);
    context_.kernels.embedding_grad(
        {.ids = batch.tokens.data() + i * context_.seq_length,
         .count = context_.seq_length,
         .dx = whole.data() + i * count,
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
                          .b = whole.data() + i * count,
                          .count = count,
                          .out = table.data});
    context_.gradients.Close(*positions_, sample);
  }
  return absl::OkStatus();
}

}  // namespace shardshift::trainer
