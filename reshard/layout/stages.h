// Which transformer layers each pipeline stage holds. A stage holds one model
// chunk, or several under interleaving (virtual pipeline stages). Chunks are
// numbered in the order of their layers: chunk j of stage p is number
// j * PP + p. The first one has the embedding, the last one the final norm and
// the output layer. Units: layers, counted from 0.
// Source: parallel-layout.md 2.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_LAYOUT_STAGES_H_
#define SHARDSHIFT_RESHARD_LAYOUT_STAGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/model_config.h"

namespace shardshift::reshard {

// Transformer layers [begin, end).
struct LayerRange {
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const LayerRange&) const = default;
};

// Whether the layers can be handed out as the layout wants it.
// Errors: InvalidArgument naming flags and numbers.
absl::Status ValidateStages(const ModelConfig& model, const Layout& layout);

// The layers of every chunk, by number. Their count is a multiple of PP; a
// chunk may have no layer.
// REQUIRES: ValidateStages(model, layout) is OK.
std::vector<LayerRange> LayersOfChunks(const ModelConfig& model,
                                       const Layout& layout);

// The layers of a stage's chunks, by chunk.
// REQUIRES: as above.
std::vector<LayerRange> LayersOfChunksOn(const ModelConfig& model,
                                         const Layout& layout, int64_t stage);

// The layers of a stage's first chunk: all it has without interleaving.
// REQUIRES: as above.
LayerRange LayersOfStage(const ModelConfig& model, const Layout& layout,
                         int64_t stage);

// Layout::stage_layers of Megatron's --pipeline-model-parallel-layout: chunks
// apart by '|', each a run of 't' for its layers, 'E' before all of them and
// 'L' after; commas mean nothing; 'x*N' and '(...)*N' repeat. "Ett|(tt|)*2tL"
// is 2, 2, 2, 1.
// Errors: InvalidArgument naming the place.
absl::StatusOr<std::vector<int64_t>> ParseStageLayout(absl::string_view text);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_LAYOUT_STAGES_H_
