// Dropout at one site of the model. Which elements are dropped follows from the
// run's seed, the site's name, the number of the sample in the run, position
// and element alone: so no layout, micro-batch or recomputation shows, and a
// resumed run needs no state. Sites as Megatron's. Equations:
// kernels/dropout.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_DROPOUT_H_
#define SHARDSHIFT_TRAINER_LAYERS_DROPOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "trainer/layers/context.h"

namespace shardshift::trainer {

// Of what lies between blocks.
class HiddenDropout {
 public:
  // `site`: "embedding", "layers.3.mlp".
  HiddenDropout(const LayerContext& context, absl::string_view site);

  bool is_on() const { return context_.dropout.hidden > 0; }

  // x, out: [r, H], of the samples of `batch`; out may be x. Forward as
  // backward. REQUIRES: is_on().
  void Apply(const MicroBatch& batch, const float* x, float* out) const;

 private:
  const LayerContext& context_;
  uint64_t key_;
};

// Of the attention probabilities of the query heads of a rank.
class AttentionDropout {
 public:
  // `site`: "layers.3.attention"; heads [first_head, first_head + heads) of the
  // model.
  AttentionDropout(const LayerContext& context, absl::string_view site,
                   int64_t first_head, int64_t heads);

  bool is_on() const { return context_.dropout.attention > 0; }

  // x, out: [S, S] of the rank's head `head`, causal; out may be x. `sample` is
  // the number in the run. REQUIRES: is_on().
  void Apply(int64_t sample, int64_t head, const float* x, float* out) const;

 private:
  const LayerContext& context_;
  std::vector<uint64_t> keys_;  // of each head
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_DROPOUT_H_
