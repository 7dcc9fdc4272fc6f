// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/rank_state.h"

#include "reshard/layout/model_map.h"

namespace shardshift::reshard {

std::vector<Range> PaddingOf(const LocalBuffer& buffer) {
  std::vector<Range> padding;
  int64_t end = 0;  // of what is filled so far
  for (const Piece& piece :
       PiecesWithin(buffer, {{0, buffer.buffer.num_elements}})) {
    if (piece.offset > end) padding.push_back({end, piece.offset});
    end = piece.offset + ckpt::NumElements(piece.box);
  }
  if (end < buffer.buffer.num_elements) {
    padding.push_back({end, buffer.buffer.num_elements});
  }
  return padding;
}

RankState MakeRankState(const ModelConfig& model, const Layout& layout,
                        int64_t rank) {
  return ModelMap(model, layout).StateOf(rank);
}

}  // namespace shardshift::reshard
