// How the shards that tensor-parallel ranks have of a tensor make it up.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_SHARD_MAP_H_
#define SHARDSHIFT_RESHARD_FORMATS_SHARD_MAP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/core/box.h"

namespace shardshift::reshard {

// More than any dim has, and few enough to be added up.
inline constexpr int64_t kMaxShardWidth = int64_t{1} << 40;

// A box of a shard, and which one of the tensor it is, of the same extents.
struct ShardPiece {
  ckpt::Box shard;
  ckpt::Box whole;
  bool is_copy = false;  // of what an earlier rank has

  friend bool operator==(const ShardPiece&, const ShardPiece&) = default;
};

struct RankShard {
  ckpt::Shape shape;
  std::vector<ShardPiece> pieces;  // each has an element

  friend bool operator==(const RankShard&, const RankShard&) = default;
};

struct ShardMap {
  ckpt::Shape shape;  // of the tensor
  std::vector<RankShard> ranks;

  friend bool operator==(const ShardMap&, const ShardMap&) = default;
};

// All ranks have all of it. REQUIRES: there is a shard.
// Errors: DataLoss if the shapes differ.
absl::StatusOr<ShardMap> CopiedMap(const std::vector<ckpt::Shape>& shards);

// The tensor is sections one after the other along `dim`, and each section the
// ranks' parts of it: rank r has widths[s][r] of section s, and its shard those
// of all sections. REQUIRES: each section has a width for each shard.
// Errors: DataLoss if the widths are not those of the shards, or other dims of
// these differ.
absl::StatusOr<ShardMap> JoinedMap(
    const std::vector<ckpt::Shape>& shards, size_t dim,
    const std::vector<std::vector<int64_t>>& widths);

// Without what lies beyond the first `rows` of dim 0.
// REQUIRES: `map` has a dim, and rows > 0.
ShardMap WithRows(const ShardMap& map, int64_t rows);

// Errors: DataLoss if a shard's pieces leave something of it out or have it
// twice, if those that are no copies do so with the tensor, and for a piece
// outside of either.
absl::Status CheckMap(const ShardMap& map);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_SHARD_MAP_H_
