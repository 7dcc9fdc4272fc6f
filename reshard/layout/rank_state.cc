// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/rank_state.h"

#include <algorithm>

namespace shardshift::reshard {
namespace {

// The pieces of `parameter`, placed at `placed` of the buffer, inside `owned`.
void AppendOwnedPieces(const Parameter& parameter, const Range& placed,
                       const Range& owned, std::vector<Piece>& pieces) {
  for (const Piece& piece : parameter.pieces) {
    const int64_t begin = placed.begin + piece.offset;
    const Range whole = {begin, begin + ckpt::NumElements(piece.box)};
    const Range part = Intersect(whole, owned);
    if (part.empty()) continue;
    int64_t offset = part.begin;
    for (ckpt::Box& box :
         ckpt::RowMajorRange(piece.box, part.begin - begin, part.end - begin)) {
      const int64_t size = ckpt::NumElements(box);
      pieces.push_back(
          {.tensor = piece.tensor, .box = std::move(box), .offset = offset});
      offset += size;
    }
  }
}

}  // namespace

RankState MakeRankState(const ModelConfig& model, const Layout& layout,
                        int64_t rank) {
  const RankCoordinates at = CoordinatesOf(layout, rank);
  RankState state;
  state.parameters = LocalParameters(model, layout, at.tensor, at.pipeline);
  std::vector<FlatParameter> flat;
  flat.reserve(state.parameters.size());
  for (const Parameter& parameter : state.parameters) {
    flat.push_back({.num_elements = parameter.num_elements(),
                    .shared_embedding = parameter.shared_embedding});
  }
  FlatBufferOptions options{
      .data_ranks = layout.data,
      .distributed_optimizer = layout.distributed_optimizer};
  if (at.pipeline == 0) options.bucket_size = DefaultBucketSize(layout.data);
  state.buffer = MakeFlatBuffer(flat, options);
  state.owned = state.buffer.OwnedRanges(at.data);
  // Reverse registration order is ascending buffer order.
  for (size_t i = state.parameters.size(); i-- > 0;) {
    for (const Range& owned : state.owned) {
      AppendOwnedPieces(state.parameters[i], state.buffer.parameters[i], owned,
                        state.pieces);
    }
  }
  return state;
}

}  // namespace shardshift::reshard
