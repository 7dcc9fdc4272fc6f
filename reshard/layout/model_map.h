// A model on a layout: all that is common to the states of its ranks. Made once
// for as many ranks as are asked for; positions of logical tensors follow by
// arithmetic, and what replicas share is made once for all of them.
// Thread-safe: nothing changes after construction.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_LAYOUT_MODEL_MAP_H_
#define SHARDSHIFT_RESHARD_LAYOUT_MODEL_MAP_H_

#include <cstdint>
#include <vector>

#include "reshard/layout/flat_buffer.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/parameters.h"
#include "reshard/layout/rank_state.h"
#include "reshard/layout/stages.h"
#include "reshard/layout/tensor_schema.h"

namespace shardshift::reshard {

// A flat buffer's place in the layout: the ranks that agree in it, and differ
// only in their data rank, hold the same parameters.
struct BufferPlace {
  bool experts = false;
  int64_t stage = 0;
  int64_t chunk = 0;
  int64_t tensor = 0;  // expert tensor rank if it holds experts
  int64_t expert = 0;
};

// Ranks first, first + stride, ...
struct RankRun {
  int64_t first = 0;
  int64_t stride = 1;
  int64_t count = 1;
};

class ModelMap {
 public:
  // REQUIRES: Validate(model, layout) is OK.
  ModelMap(const ModelConfig& model, const Layout& layout);

  // Every place of the layout.
  std::vector<BufferPlace> Places() const;

  // The ranks of a place, by data rank.
  RankRun RanksOf(const BufferPlace& place) const;

  // Which of the buffers of each of its ranks a place is.
  int64_t IndexOf(const BufferPlace& place) const {
    return place.experts ? num_chunks() + place.chunk : place.chunk;
  }

  // The buffer of a place; `owned` and `pieces` are those of no rank: empty.
  LocalBuffer MakeBuffer(const BufferPlace& place) const;

  // REQUIRES: 0 <= rank < world size.
  RankState StateOf(int64_t rank) const;

 private:
  int64_t num_chunks() const;
  std::vector<Parameter> MakeParameters(const BufferPlace& place) const;
  void AppendLayer(int64_t layer, const BufferPlace& place,
                   std::vector<Parameter>& parameters) const;
  void AppendGroup(const TensorGroup& group, const std::string& prefix,
                   int64_t first_tensor, const BufferPlace& place,
                   std::vector<Parameter>& parameters) const;

  const ModelConfig model_;
  const Layout layout_;
  const TensorSchema schema_;
  const std::vector<LayerRange> chunks_;
};

// What a rank holds, in elements, padding included.
struct RankSize {
  int64_t parameters = 0;  // of its flat buffers
  int64_t owned = 0;       // of these, with their optimizer state

  bool operator==(const RankSize&) const = default;
};

// Of every rank; buffers are made once for all ranks that share them.
// REQUIRES: Validate(model, layout) is OK.
std::vector<RankSize> SizesOfRanks(const ModelConfig& model,
                                   const Layout& layout);

// The pieces of a buffer inside `owned`, as LocalBuffer::pieces.
std::vector<Piece> PiecesWithin(const LocalBuffer& buffer,
                                const std::vector<Range>& owned);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_LAYOUT_MODEL_MAP_H_
