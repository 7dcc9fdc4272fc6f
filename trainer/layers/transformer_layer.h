// One pre-norm transformer layer:
//   h = x + attention(attention_norm(x));  y = h + mlp(mlp_norm(h))
// with dropout on what is added. In place of the mlp there may be a mixture of
// experts.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_TRANSFORMER_LAYER_H_
#define SHARDSHIFT_TRAINER_LAYERS_TRANSFORMER_LAYER_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "trainer/buffer.h"
#include "trainer/layers/attention.h"
#include "trainer/layers/context.h"
#include "trainer/layers/dropout.h"
#include "trainer/layers/mixture.h"
#include "trainer/layers/mlp.h"
#include "trainer/layers/norm.h"

namespace shardshift::trainer {

class TransformerLayer {
 public:
  // Kept from forward to backward; all buffers without a shape are [r, H].
  struct Cache {
    Buffer x;
    Norm::Stats attention_stats;
    Buffer attention_in;
    Attention::Cache attention;
    Buffer h;
    Norm::Stats mlp_stats;
    Buffer mlp_in;
    Mlp::Cache mlp;
    Mixture::Cache mixture;
  };

  TransformerLayer(LayerContext& context, int64_t layer, const RopeTable& rope);

  // Takes x and gives y. Two all-reduces, or as many all-gathers
  // and reduce-scatters; a mixture communicates on its own.
  absl::Status Forward(Buffer x, const MicroBatch& batch, Buffer& y,
                       Cache& cache);

  // dy becomes dx in place. Two all-reduces, or four all-gathers and two
  // reduce-scatters.
  absl::Status Backward(const Cache& cache, const MicroBatch& batch,
                        Buffer& dy);

 private:
  TransformerLayer(LayerContext& context, const std::string& prefix,
                   bool has_experts, const RopeTable& rope);

  absl::Status ForwardMlp(const MicroBatch& batch, float* y, Cache& cache);
  absl::Status BackwardMlp(const Cache& cache, const MicroBatch& batch,
                           const float* dy, float* dx);

  LayerContext& context_;
  Norm attention_norm_;
  Attention attention_;
  Norm mlp_norm_;
  std::optional<Mlp> mlp_;  // or:
  std::optional<Mixture> mixture_;
  HiddenDropout attention_dropout_;
  HiddenDropout mlp_dropout_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_TRANSFORMER_LAYER_H_
