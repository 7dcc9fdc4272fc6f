// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/rank_state.h"

#include <algorithm>

namespace shardshift::reshard {
namespace {

// Appends the boxes of `range`, where dims before `dim` are fixed in `prefix`.
void AppendFlatRange(const ckpt::Box& box, size_t dim, ckpt::Box prefix,
                     Range range, std::vector<ckpt::Box>& boxes) {
  if (range.empty()) return;
  int64_t stride = 1;
  for (size_t d = dim + 1; d < box.extent.size(); ++d) stride *= box.extent[d];
  const auto rows = [&](int64_t begin, int64_t end) {
    ckpt::Box slab = prefix;
    slab.start[dim] = box.start[dim] + begin;
    slab.extent[dim] = end - begin;
    return slab;
  };
  const int64_t first_whole = (range.begin + stride - 1) / stride;
  const int64_t end_whole = range.end / stride;
  if (first_whole > end_whole) {  // inside one row
    AppendFlatRange(
        box, dim + 1, rows(end_whole, first_whole),
        {range.begin - end_whole * stride, range.end - end_whole * stride},
        boxes);
    return;
  }
  if (range.begin < first_whole * stride) {
    const int64_t row = first_whole - 1;
    AppendFlatRange(box, dim + 1, rows(row, row + 1),
                    {range.begin - row * stride, stride}, boxes);
  }
  if (first_whole < end_whole) boxes.push_back(rows(first_whole, end_whole));
  if (end_whole * stride < range.end) {
    AppendFlatRange(box, dim + 1, rows(end_whole, end_whole + 1),
                    {0, range.end - end_whole * stride}, boxes);
  }
}

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
         FlatRangeToBoxes(piece.box, {part.begin - begin, part.end - begin})) {
      const int64_t size = ckpt::NumElements(box);
      pieces.push_back(
          {.tensor = piece.tensor, .box = std::move(box), .offset = offset});
      offset += size;
    }
  }
}

}  // namespace

std::vector<ckpt::Box> FlatRangeToBoxes(const ckpt::Box& box,
                                        const Range& range) {
  std::vector<ckpt::Box> boxes;
  if (range.empty()) return boxes;
  if (box.extent.empty()) {
    boxes.push_back(box);
  } else {
    AppendFlatRange(box, 0, box, range, boxes);
  }
  return boxes;
}

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
