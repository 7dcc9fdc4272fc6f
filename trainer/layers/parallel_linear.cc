// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/parallel_linear.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "trainer/buffer.h"
#include "trainer/layers/linear.h"

namespace shardshift::trainer {
namespace {

int64_t FindWeight(const LayerContext& context, const std::string& name) {
  return context.parameters.Find(absl::StrCat(name, ".weight")).value();
}

// dW = dy^T x, each sample on its own: a chain over its positions.
void AddWeightGradient(LayerContext& context, int64_t entry, const float* dy,
                       const float* x, int64_t out, int64_t in,
                       const MicroBatch& batch) {
  const int64_t positions = context.seq_length;
  for (int64_t i = 0; i < batch.num_samples; ++i) {
    const int64_t sample = batch.first_sample + i;
    const auto target = context.gradients.Open(entry, sample);
    MultiplyLinearGradient(context.kernels,
                           {.rows = positions, .in = in, .out = out},
                           dy + i * positions * out, x + i * positions * in,
                           target.accumulate, target.data);
    context.gradients.Close(entry, sample);
  }
}

// The bias of outputs that are split: whole on its rank, a chain over the
// positions of each sample.
void AddColumnBiasGradient(LayerContext& context, int64_t entry,
                           const float* dy, int64_t out,
                           const MicroBatch& batch) {
  const int64_t positions = context.seq_length;
  Buffer partial(out);
  for (int64_t i = 0; i < batch.num_samples; ++i) {
    const int64_t sample = batch.first_sample + i;
    const auto target = context.gradients.Open(entry, sample);
    float* sum = target.accumulate ? partial.data() : target.data;
    std::fill_n(sum, out, 0.0F);
    context.kernels.column_sum({.dy = dy + i * positions * out,
                                .ld_dy = out,
                                .rows = positions,
                                .cols = out,
                                .acc = sum});
    if (target.accumulate) {
      context.kernels.add(
          {.a = target.data, .b = sum, .count = out, .out = target.data});
    }
    context.gradients.Close(entry, sample);
  }
}

// The bias of outputs that every rank has: summed by blocks of positions, of
// those that this rank has.
void AddRowBiasGradient(LayerContext& context, int64_t entry, const float* dy,
                        int64_t out, const MicroBatch& batch) {
  const int64_t blocks = context.shards.blocks();
  const int64_t positions = context.shards.positions() / blocks;
  for (int64_t i = 0; i < batch.num_samples; ++i) {
    const int64_t sample = batch.first_sample + i;
    float* sums = context.gradients.OpenBlocks(entry, sample);
    for (int64_t block = 0; block < blocks; ++block) {
      context.kernels.column_sum(
          {.dy = dy + (i * blocks + block) * positions * out,
           .ld_dy = out,
           .rows = positions,
           .cols = out,
           .acc = sums + block * out});
    }
    context.gradients.Close(entry, sample);
  }
}

// Of a product whose sums are complete.
void FinishOutputs(const LayerContext& context,
                   const std::optional<int64_t>& bias, int64_t rows,
                   int64_t width, float* y) {
  context.Round(y, rows * width);
  if (!bias.has_value()) return;
  context.kernels.add_bias({.x = y,
                            .ldx = width,
                            .bias = context.parameters.data(*bias),
                            .rows = rows,
                            .cols = width});
  context.Round(y, rows * width);
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(LayerContext& context,
                                           const std::string& name,
                                           const Options& options)
    : context_(context),
      weight_(FindWeight(context, name)),
      bias_(context.parameters.Find(absl::StrCat(name, ".bias"))),
      gradient_entry_(options.gradient_entry.value_or(weight_)),
      parts_(options.parts) {
  const ckpt::Shape& shape =
      context.parameters.state().parameters[weight_].shape;
  out_ = shape[0];
  in_ = shape[1];
}

absl::Status ColumnParallelLinear::Forward(const float* x, int64_t rows,
                                           float* y) const {
  SS_ASSIGN_OR_RETURN(const SequenceShards::WholeRows whole,
                      context_.shards.Gather(x, rows));
  MultiplyLinear(context_.kernels, {.rows = rows, .in = in_, .out = out_},
                 whole.data(), context_.parameters.data(weight_),
                 /*leaves=*/1, y);
  FinishOutputs(context_, bias_, rows, out_, y);
  return absl::OkStatus();
}

absl::Status ColumnParallelLinear::AddGradients(const float* x, const float* dy,
                                                const MicroBatch& batch) {
  SS_ASSIGN_OR_RETURN(
      const SequenceShards::WholeRows whole,
      context_.shards.Gather(x, batch.num_samples * context_.seq_length));
  AddWeightGradient(context_, gradient_entry_, dy, whole.data(), out_, in_,
                    batch);
  if (bias_.has_value()) {
    AddColumnBiasGradient(context_, *bias_, dy, out_, batch);
  }
  return absl::OkStatus();
}

absl::Status ColumnParallelLinear::Backward(const float* x, const float* dy,
                                            const MicroBatch& batch,
                                            float* dx) {
  const int64_t rows = batch.num_samples * context_.seq_length;
  SS_RETURN_IF_ERROR(AddGradients(x, dy, batch));
  SS_RETURN_IF_ERROR(context_.shards.Sum(
      rows,
      [&](float* partial) {
        MultiplyLinearBackward(context_.kernels,
                               {.rows = rows, .in = in_, .out = out_}, dy,
                               context_.parameters.data(weight_),
                               context_.leaves_per_rank(), parts_, partial);
      },
      dx));
  context_.Round(dx, context_.shards.rows(rows) * in_);
  return absl::OkStatus();
}

RowParallelLinear::RowParallelLinear(LayerContext& context,
                                     const std::string& name)
    : context_(context),
      weight_(FindWeight(context, name)),
      bias_(context.parameters.Find(absl::StrCat(name, ".bias"))) {
  const ckpt::Shape& shape =
      context.parameters.state().parameters[weight_].shape;
  out_ = shape[0];
  in_ = shape[1];
}

absl::Status RowParallelLinear::Forward(const float* x, int64_t rows,
                                        float* y) const {
  SS_RETURN_IF_ERROR(context_.shards.Sum(
      rows,
      [&](float* partial) {
        MultiplyLinear(context_.kernels, {.rows = rows, .in = in_, .out = out_},
                       x, context_.parameters.data(weight_),
                       context_.leaves_per_rank(), partial);
      },
      y));
  FinishOutputs(context_, bias_, context_.shards.rows(rows), out_, y);
  return absl::OkStatus();
}

absl::Status RowParallelLinear::Backward(const float* x, const float* dy,
                                         const MicroBatch& batch, float* dx) {
  const int64_t rows = batch.num_samples * context_.seq_length;
  if (bias_.has_value()) {
    AddRowBiasGradient(context_, *bias_, dy, out_, batch);
  }
  SS_ASSIGN_OR_RETURN(const SequenceShards::WholeRows whole,
                      context_.shards.Gather(dy, rows));
  AddWeightGradient(context_, weight_, whole.data(), x, out_, in_, batch);
  MultiplyLinearBackward(context_.kernels,
                         {.rows = rows, .in = in_, .out = out_}, whole.data(),
                         context_.parameters.data(weight_), /*leaves=*/1,
                         /*parts=*/1, dx);
  context_.Round(dx, rows * in_);
  return absl::OkStatus();
}

}  // namespace shardshift::trainer
