// What one rank holds of the training state: its parameters, the flat buffers
// they lie in, and the boxes of logical tensors whose optimizer state (master
// weight and moments) it owns. The trainer's buffers, its load and save, and
// `reshard` all follow this one map.
// Source: distributed-optimizer.md 1.1.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_LAYOUT_RANK_STATE_H_
#define SHARDSHIFT_RESHARD_LAYOUT_RANK_STATE_H_

#include <cstdint>
#include <vector>

#include "reshard/layout/flat_buffer.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

// Parameters of one model chunk in a flat buffer.
struct LocalBuffer {
  int64_t chunk = 0;     // of the rank's stage
  bool experts = false;  // whether it holds the experts, kept apart
  std::vector<Parameter> parameters = {};  // registration order
  FlatBuffer buffer = {};
  std::vector<Range> owned = {};  // of `buffer`, one a bucket, ascending
  // Boxes this rank owns the optimizer state of, in buffer order; `offset` is
  // the element of the flat buffer. Padding has no piece.
  std::vector<Piece> pieces = {};
};

struct RankState {
  // One a model chunk; then, if the layout separates experts, theirs, one a
  // chunk. A chunk without parameters has empty ones, where Megatron has none.
  std::vector<LocalBuffer> buffers;
};

// Elements of a flat buffer that hold nothing of a logical tensor: what pads
// the vocabulary, aligns a parameter, or fills a bucket. Ascending, apart.
std::vector<Range> PaddingOf(const LocalBuffer& buffer);

// One of many: ModelMap::StateOf.
// REQUIRES: Validate(model, layout) is OK, 0 <= rank < world size.
RankState MakeRankState(const ModelConfig& model, const Layout& layout,
                        int64_t rank);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_LAYOUT_RANK_STATE_H_
