// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/parallel_linear.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "trainer/buffer.h"

namespace shardshift::trainer {
namespace {

using kernels::StridedMatrix;

StridedMatrix RowMajor(const float* data, int64_t columns) {
  return {.data = data, .row_stride = columns, .col_stride = 1};
}
StridedMatrix Transposed(const float* data, int64_t columns) {
  return {.data = data, .row_stride = 1, .col_stride = columns};
}

int64_t FindWeight(const LayerContext& context, const std::string& name) {
  return context.parameters.Find(absl::StrCat(name, ".weight")).value();
}

// y = x W^T over `leaves` leaves of the inputs.
void Multiply(const LayerContext& context, const float* x, int64_t rows,
              const float* weight, int64_t out, int64_t in, int64_t leaves,
              float* y) {
  context.kernels.gemm({.m = rows,
                        .n = out,
                        .k = in,
                        .a = RowMajor(x, in),
                        .b = Transposed(weight, in),
                        .c = y,
                        .ldc = out,
                        .leaves = leaves});
}

// dx = dy W over `leaves` leaves of the outputs.
void MultiplyBackward(const LayerContext& context, const float* dy,
                      int64_t rows, const float* weight, int64_t out,
                      int64_t in, int64_t leaves, int64_t parts, float* dx) {
  context.kernels.gemm({.m = rows,
                        .n = in,
                        .k = out,
                        .a = RowMajor(dy, out),
                        .b = RowMajor(weight, in),
                        .c = dx,
                        .ldc = in,
                        .leaves = leaves,
                        .parts = parts});
}

// dW = dy^T x, each sample on its own: a chain over its positions.
void AddWeightGradient(LayerContext& context, int64_t entry, const float* dy,
                       const float* x, int64_t out, int64_t in,
                       const MicroBatch& batch) {
  const int64_t positions = context.seq_length;
  for (int64_t i = 0; i < batch.num_samples; ++i) {
    const int64_t sample = batch.first_sample + i;
    const auto target = context.gradients.Open(entry, sample);
    context.kernels.gemm({.m = out,
                          .n = in,
                          .k = positions,
                          .a = Transposed(dy + i * positions * out, out),
                          .b = RowMajor(x + i * positions * in, in),
                          .c = target.data,
                          .ldc = in,
                          .accumulate = target.accumulate});
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

// The bias of outputs that every rank has: summed by blocks of positions.
void AddRowBiasGradient(LayerContext& context, int64_t entry, const float* dy,
                        int64_t out, const MicroBatch& batch) {
  const int64_t blocks = context.gradients.blocks();
  const int64_t positions = context.seq_length / blocks;
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

void ColumnParallelLinear::Forward(const float* x, int64_t rows,
                                   float* y) const {
  Multiply(context_, x, rows, context_.parameters.data(weight_), out_, in_,
           /*leaves=*/1, y);
  if (!bias_.has_value()) return;
  context_.kernels.add_bias({.x = y,
                             .ldx = out_,
                             .bias = context_.parameters.data(*bias_),
                             .rows = rows,
                             .cols = out_});
}

absl::Status ColumnParallelLinear::Backward(const float* x, const float* dy,
                                            const MicroBatch& batch,
                                            float* dx) {
  const int64_t rows = batch.num_samples * context_.seq_length;
  const int64_t leaves = context_.leaves_per_rank();
  AddWeightGradient(context_, gradient_entry_, dy, x, out_, in_, batch);
  if (bias_.has_value()) {
    AddColumnBiasGradient(context_, *bias_, dy, out_, batch);
  }
  MultiplyBackward(context_, dy, rows, context_.parameters.data(weight_), out_,
                   in_, leaves, parts_, dx);
  return context_.mesh.tensor().TreeAllReduceInPlace(
      {dx, static_cast<size_t>(rows * in_)}, leaves);
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
  const int64_t leaves = context_.leaves_per_rank();
  Multiply(context_, x, rows, context_.parameters.data(weight_), out_, in_,
           leaves, y);
  const absl::Status summed = context_.mesh.tensor().TreeAllReduceInPlace(
      {y, static_cast<size_t>(rows * out_)}, leaves);
  if (!summed.ok() || !bias_.has_value()) return summed;
  context_.kernels.add_bias({.x = y,
                             .ldx = out_,
                             .bias = context_.parameters.data(*bias_),
                             .rows = rows,
                             .cols = out_});
  return absl::OkStatus();
}

void RowParallelLinear::Backward(const float* x, const float* dy,
                                 const MicroBatch& batch, float* dx) {
  AddWeightGradient(context_, weight_, dy, x, out_, in_, batch);
  if (bias_.has_value()) {
    AddRowBiasGradient(context_, *bias_, dy, out_, batch);
  }
  MultiplyBackward(context_, dy, batch.num_samples * context_.seq_length,
                   context_.parameters.data(weight_), out_, in_, /*leaves=*/1,
                   /*parts=*/1, dx);
}

}  // namespace shardshift::trainer
