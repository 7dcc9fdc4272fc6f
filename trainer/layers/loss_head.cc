// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/loss_head.h"

#include <string>

#include "ckpt/core/status_macros.h"

namespace shardshift::trainer {
namespace {

// The last of several stages has an output.weight even when it is tied: its
// copy of the embedding.
std::string OutputName(const LayerContext& context) {
  return context.parameters.Find("output.weight").has_value()
             ? "output"
             : "embedding.word";
}

}  // namespace

LossHead::LossHead(LayerContext& context, std::optional<int64_t> tied_entry)
    : context_(context),
      norm_(context, "final_norm"),
      output_(context, OutputName(context), {.gradient_entry = tied_entry}) {}

kernels::LogitsShard LossHead::Shard(const Cache& cache, int64_t rows) const {
  return {.logits = cache.logits.data(),
          .rows = rows,
          .cols = output_.out(),
          .first_column = context_.mesh.at().tensor * output_.out(),
          .vocab_size = context_.model.vocab_size};
}

absl::Status LossHead::Forward(const float* x, const MicroBatch& batch,
                               Cache& cache, std::span<double> sample_losses) {
  Communicator& comm = context_.mesh.tensor();
  const int64_t leaves = context_.leaves_per_rank();
  const int64_t rows = batch.num_samples * context_.seq_length;
  const int64_t held_rows = context_.shards.rows(rows);
  cache.normed = Buffer(held_rows * context_.model.hidden_size);
  cache.logits = Buffer(rows * output_.out());
  cache.maximum = Buffer(rows);
  norm_.Forward(x, held_rows, cache.normed.data(), cache.stats);
  SS_RETURN_IF_ERROR(
      output_.Forward(cache.normed.data(), rows, cache.logits.data()));

  const kernels::LogitsShard shard = Shard(cache, rows);
  context_.kernels.row_max({.shard = shard, .max = cache.maximum.data()});
  SS_RETURN_IF_ERROR(comm.AllReduceMax(cache.maximum.span()));
  // The sums of exponentials and the targets' logits travel together.
  cache.exp_sum = Buffer(2 * rows);
  float* predicted = cache.exp_sum.data() + rows;
  context_.kernels.exp_sum({.shard = shard,
                            .max = cache.maximum.data(),
                            .leaves = leaves,
                            .sum = cache.exp_sum.data()});
  context_.kernels.predicted_logit({.shard = shard,
                                    .targets = batch.labels.data(),
                                    .max = cache.maximum.data(),
                                    .predicted = predicted});
  SS_RETURN_IF_ERROR(comm.TreeAllReduceInPlace(cache.exp_sum.span(), leaves));

  Buffer token_losses(rows);
  kernels::TokenLoss(cache.exp_sum.data(), predicted, rows,
                     token_losses.data());
  for (int64_t i = 0; i < batch.num_samples; ++i) {
    double sum = 0;
    for (int64_t t = 0; t < context_.seq_length; ++t) {
      sum +=
          static_cast<double>(token_losses.data()[i * context_.seq_length + t]);
    }
    sample_losses[i] = sum;
  }
  return absl::OkStatus();
}

void LossHead::ScaleGradient(Buffer& d_logits) const {
  if (context_.token_gradient != 1.0F) {
    context_.kernels.scale({.x = d_logits.data(),
                            .count = d_logits.size(),
                            .factor = context_.token_gradient});
  }
  context_.Round(d_logits.data(), d_logits.size());
}

absl::Status LossHead::Backward(const float* x, const MicroBatch& batch,
                                Cache& cache, float* dx) {
  const int64_t rows = batch.num_samples * context_.seq_length;
  context_.kernels.cross_entropy_backward({.shard = Shard(cache, rows),
                                           .targets = batch.labels.data(),
                                           .max = cache.maximum.data(),
                                           .sum = cache.exp_sum.data(),
                                           .dlogits = cache.logits.data()});
  ScaleGradient(cache.logits);
  Buffer d_normed(context_.shards.rows(rows) * context_.model.hidden_size);
  SS_RETURN_IF_ERROR(output_.Backward(cache.normed.data(), cache.logits.data(),
                                      batch, d_normed.data()));
  norm_.Backward(x, d_normed.data(), cache.stats, batch, dx);
  return absl::OkStatus();
}

}  // namespace shardshift::trainer
