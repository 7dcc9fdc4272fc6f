// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/replicated_linear.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "trainer/layers/linear.h"

namespace shardshift::trainer {

bool ReplicatedLinear::Owns(absl::string_view parameter) {
  return absl::EndsWith(parameter, ".router.weight") ||
         absl::EndsWith(parameter, ".output_gate.weight");
}

ReplicatedLinear::ReplicatedLinear(LayerContext& context,
                                   const std::string& name)
    : context_(context),
      weight_(context.parameters.Find(absl::StrCat(name, ".weight")).value()) {
  const ckpt::Shape& shape =
      context.parameters.state().parameters[weight_].shape;
  out_ = shape[0];
  in_ = shape[1];
}

void ReplicatedLinear::Forward(const float* x, int64_t rows, float* y) const {
  MultiplyLinear(context_.kernels, {.rows = rows, .in = in_, .out = out_}, x,
                 context_.parameters.data(weight_), /*leaves=*/1, y);
}

void ReplicatedLinear::Backward(const float* x, const float* dy,
                                const MicroBatch& batch, float* dx) {
  const int64_t blocks = context_.shards.blocks();
  const int64_t positions = context_.shards.positions() / blocks;
  for (int64_t i = 0; i < batch.num_samples; ++i) {
    const int64_t sample = batch.first_sample + i;
    float* sums = context_.gradients.OpenBlocks(weight_, sample);
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t row = (i * blocks + block) * positions;
      MultiplyLinearGradient(context_.kernels,
                             {.rows = positions, .in = in_, .out = out_},
                             dy + row * out_, x + row * in_,
                             /*accumulate=*/true, sums + block * out_ * in_);
    }
    context_.gradients.Close(weight_, sample);
  }
  const int64_t rows = batch.num_samples * context_.shards.positions();
  MultiplyLinearBackward(context_.kernels,
                         {.rows = rows, .in = in_, .out = out_}, dy,
                         context_.parameters.data(weight_), /*leaves=*/1,
                         /*parts=*/1, dx);
}

}  // namespace shardshift::trainer
