// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/holdings.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace shardshift::reshard {

std::vector<Holding> HoldingsOf(const ModelConfig& model,
                                const Layout& layout) {
  const ModelMap map(model, layout);
  std::vector<Holding> holdings;
  for (const BufferPlace& place : map.Places()) {
    const LocalBuffer buffer = map.MakeBuffer(place);
    const RankRun all = map.RanksOf(place);
    // Ranks that own the same are one holding.
    const int64_t shards = buffer.buffer.shards;
    for (int64_t shard = 0; shard < shards; ++shard) {
      const RankRun ranks = {.first = all.first + shard * all.stride,
                             .stride = all.stride,
                             .count = all.count / shards};
      for (Piece& piece :
           PiecesWithin(buffer, buffer.buffer.OwnedRanges(shard))) {
        holdings.push_back({std::move(piece), map.IndexOf(place), ranks});
      }
    }
  }
  std::sort(holdings.begin(), holdings.end(),
            [](const Holding& a, const Holding& b) {
              return std::tie(a.piece.tensor, a.piece.box, a.ranks.first) <
                     std::tie(b.piece.tensor, b.piece.box, b.ranks.first);
            });
  return holdings;
}

std::vector<Replicas> GroupByBox(const std::vector<Holding>& holdings) {
  std::vector<Replicas> groups;
  for (size_t begin = 0, end = 0; begin < holdings.size(); begin = end) {
    const Piece& first = holdings[begin].piece;
    while (end < holdings.size() &&
           holdings[end].piece.tensor == first.tensor &&
           holdings[end].piece.box == first.box) {
      ++end;
    }
    groups.push_back(std::span(holdings).subspan(begin, end - begin));
  }
  return groups;
}

}  // namespace shardshift::reshard
