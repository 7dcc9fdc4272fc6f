// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/shard_map.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/format/cover.h"

namespace shardshift::reshard {
namespace {

absl::Status CheckTiles(const ckpt::Shape& shape,
                        const std::vector<ckpt::Box>& boxes,
                        absl::string_view what) {
  const ckpt::Box whole = ckpt::WholeBox(shape);
  const auto fault = [&](absl::string_view text) {
    return absl::DataLossError(absl::StrCat("the pieces of ", what,
                                            " of shape ", ckpt::ToString(shape),
                                            " do not make it up: ", text));
  };
  for (const ckpt::Box& box : boxes) {
    if (ckpt::NumElements(box) == 0 || !ckpt::Contains(whole, box)) {
      return fault(absl::StrCat(ckpt::ToString(box), " is outside of it"));
    }
  }
  if (ckpt::NumElements(shape) == 0) return absl::OkStatus();
  const absl::Status covers = ckpt::CheckExactCover(whole, boxes);
  return covers.ok() ? covers : fault(covers.message());
}

}  // namespace

absl::StatusOr<ShardMap> CopiedMap(const std::vector<ckpt::Shape>& shards) {
  ShardMap map;
  map.shape = shards.front();
  const ckpt::Box whole = ckpt::WholeBox(map.shape);
  for (const ckpt::Shape& shard : shards) {
    if (shard != map.shape) {
      return absl::DataLossError(
          absl::StrCat("is the same on all ranks, but rank ", map.ranks.size(),
                       " has it in shape ", ckpt::ToString(shard),
                       ", and rank 0 in ", ckpt::ToString(map.shape)));
    }
    RankShard rank = {shard, {}};
    if (ckpt::NumElements(shard) > 0) {
      rank.pieces.push_back({whole, whole, !map.ranks.empty()});
    }
    map.ranks.push_back(std::move(rank));
  }
  return map;
}

absl::StatusOr<ShardMap> JoinedMap(
    const std::vector<ckpt::Shape>& shards, size_t dim,
    const std::vector<std::vector<int64_t>>& widths) {
  ShardMap map;
  map.shape = shards.front();
  if (dim >= map.shape.size()) {
    return absl::DataLossError(absl::StrCat("is split along dim ", dim,
                                            ", but its shards have shape ",
                                            ckpt::ToString(map.shape)));
  }
  map.shape[dim] = 0;
  for (size_t r = 0; r < shards.size(); ++r) {
    ckpt::Shape expected = map.shape;
    expected[dim] = 0;
    for (const std::vector<int64_t>& section : widths) {
      expected[dim] += section[r];
    }
    if (shards[r] != expected) {
      return absl::DataLossError(absl::StrCat(
          "is split along dim ", dim, ", but rank ", r, " has it in shape ",
          ckpt::ToString(shards[r]), ", expected ", ckpt::ToString(expected)));
    }
    map.ranks.push_back({shards[r], {}});
  }
  std::vector<int64_t> begins(shards.size());
  for (const std::vector<int64_t>& section : widths) {
    for (size_t r = 0; r < shards.size(); ++r) {
      ShardPiece piece;
      piece.shard = ckpt::WholeBox(shards[r]);
      piece.shard.extent[dim] = section[r];
      piece.whole = piece.shard;
      piece.shard.start[dim] = begins[r];
      piece.whole.start[dim] = map.shape[dim];
      begins[r] += section[r];
      map.shape[dim] += section[r];
      if (ckpt::NumElements(piece.shard) > 0) {
        map.ranks[r].pieces.push_back(std::move(piece));
      }
    }
  }
  return map;
}

ShardMap WithRows(const ShardMap& map, int64_t rows) {
  ShardMap result = map;
  result.shape[0] = std::min(rows, map.shape[0]);
  for (RankShard& rank : result.ranks) {
    std::vector<ShardPiece> kept;
    for (ShardPiece piece : rank.pieces) {
      const int64_t count =
          std::min(piece.whole.extent[0], rows - piece.whole.start[0]);
      if (count <= 0) continue;
      piece.whole.extent[0] = count;
      piece.shard.extent[0] = count;
      kept.push_back(std::move(piece));
    }
    rank.pieces = std::move(kept);
  }
  return result;
}

absl::Status CheckMap(const ShardMap& map) {
  std::vector<ckpt::Box> all;
  for (size_t r = 0; r < map.ranks.size(); ++r) {
    const RankShard& rank = map.ranks[r];
    std::vector<ckpt::Box> boxes;
    boxes.reserve(rank.pieces.size());
    for (const ShardPiece& piece : rank.pieces) {
      boxes.push_back(piece.shard);
      if (!piece.is_copy) all.push_back(piece.whole);
    }
    SS_RETURN_IF_ERROR(
        CheckTiles(rank.shape, boxes, absl::StrCat("the shard of rank ", r)));
  }
  return CheckTiles(map.shape, all, "the tensor");
}

}  // namespace shardshift::reshard
