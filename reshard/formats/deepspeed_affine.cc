// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/deepspeed_affine.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/common_values.h"

namespace shardshift::reshard {
namespace {

// Enough for each head of each rank, and few enough to be compared.
constexpr size_t kMaxPieces = 4096;

absl::StatusOr<ckpt::Shape> ReadShape(const PickleValue& of,
                                      absl::string_view key) {
  SS_ASSIGN_OR_RETURN(const PickleValue value, of.Get(key));
  SS_ASSIGN_OR_RETURN(ckpt::Shape shape, AsShape(value));
  SS_RETURN_IF_ERROR(
      Annotate(ckpt::CheckedNumElements(shape).status(), value.Where()));
  return shape;
}

// The box of a tensor that `place`, [offset, strides], makes of an extent: it
// must go along the tensor's own dims.
absl::StatusOr<ckpt::Box> BoxAt(const PickleValue& place,
                                const ckpt::Shape& extent,
                                const ckpt::Shape& tensor) {
  SS_ASSIGN_OR_RETURN(const PickleValue offset_value, place.At(0));
  SS_ASSIGN_OR_RETURN(int64_t offset, offset_value.AsInt());
  SS_ASSIGN_OR_RETURN(const PickleValue strides_value, place.At(1));
  SS_ASSIGN_OR_RETURN(const auto strides, strides_value.AsInts());
  const auto no_box = [&] {
    return absl::UnimplementedError(
        absl::StrCat(place.Where(), " with shape ", ckpt::ToString(extent),
                     " is no box of a tensor of shape ", ckpt::ToString(tensor),
                     ", and other blocks cannot be placed"));
  };
  if (strides.size() != tensor.size() || extent.size() != tensor.size()) {
    return no_box();
  }
  const int64_t num_elements = ckpt::NumElements(tensor);
  if (offset < 0 || offset >= num_elements) {
    return place.Error(
        absl::StrCat("begins at element ", offset, " of ", num_elements));
  }
  ckpt::Box box = {tensor, extent};
  int64_t stride = num_elements;
  bool is_within = true;
  for (size_t d = 0; d < tensor.size(); ++d) {
    stride /= tensor[d];
    if (extent[d] > 1 && strides[d] != stride) return no_box();
    box.start[d] = offset / stride;
    offset %= stride;
    is_within = is_within && extent[d] <= tensor[d] - box.start[d];
  }
  if (!is_within) {
    return place.Error(absl::StrCat("goes to ", ckpt::ToString(box),
                                    ", outside of shape ",
                                    ckpt::ToString(tensor)));
  }
  return box;
}

class AffineReader {
 public:
  AffineReader(const PickleValue& entry, int64_t num_ranks)
      : entry_(entry), num_ranks_(num_ranks) {}

  absl::StatusOr<ShardMap> Read() {
    SS_ASSIGN_OR_RETURN(map_.shape, ReadShape(entry_, "logical_shape"));
    SS_ASSIGN_OR_RETURN(const PickleValue ranks, entry_.Get("ranks"));
    SS_ASSIGN_OR_RETURN(const auto entries, ranks.AsEntries());
    std::map<int64_t, PickleValue> by_rank;
    for (const auto& [key, value] : entries) {
      SS_ASSIGN_OR_RETURN(const int64_t rank, key.AsInt());
      by_rank.emplace(rank, value);
    }
    if (std::ssize(by_rank) != num_ranks_ || by_rank.begin()->first != 0 ||
        by_rank.rbegin()->first != num_ranks_ - 1) {
      return ranks.Error(absl::StrCat("tells of ", by_rank.size(),
                                      " ranks, expected each of the ",
                                      num_ranks_));
    }
    for (const auto& [rank, value] : by_rank) {
      SS_RETURN_IF_ERROR(ReadRank(value, rank));
    }
    SS_RETURN_IF_ERROR(Annotate(CheckMap(map_), entry_.Where()));
    SS_RETURN_IF_ERROR(CheckLocations());
    return std::move(map_);
  }

 private:
  // Which ranks are said to have a block.
  struct Told {
    std::set<int64_t> ranks;
    PickleValue where;
  };

  absl::Status ReadRank(const PickleValue& value, int64_t rank) {
    SS_ASSIGN_OR_RETURN(ckpt::Shape shape, ReadShape(value, "shard_shape"));
    map_.ranks.push_back({std::move(shape), {}});
    SS_ASSIGN_OR_RETURN(const PickleValue pieces, value.Get("pieces"));
    SS_ASSIGN_OR_RETURN(const auto list, pieces.AsList());
    if (list.size() > kMaxPieces) {
      return absl::UnimplementedError(
          absl::StrCat(pieces.Where(), " has ", list.size(),
                       " pieces, expected at most ", kMaxPieces));
    }
    for (const PickleValue& piece : list) {
      SS_RETURN_IF_ERROR(ReadPiece(piece, rank));
    }
    return absl::OkStatus();
  }

  absl::Status ReadPiece(const PickleValue& piece, int64_t rank) {
    SS_ASSIGN_OR_RETURN(const ckpt::Shape extent, ReadShape(piece, "shape"));
    if (ckpt::NumElements(extent) == 0) return absl::OkStatus();
    SS_ASSIGN_OR_RETURN(const auto scale, piece.Find("scale"));
    if (scale.has_value()) {
      SS_ASSIGN_OR_RETURN(const double factor, scale->AsDouble());
      if (factor != 1) {
        return absl::UnimplementedError(absl::StrCat(
            scale->Where(), " is ", factor,
            ": a shard that holds its values multiplied cannot be merged"));
      }
    }
    ShardPiece placed;
    SS_ASSIGN_OR_RETURN(const PickleValue source, piece.Get("source"));
    SS_ASSIGN_OR_RETURN(placed.whole, BoxAt(source, extent, map_.shape));
    SS_ASSIGN_OR_RETURN(const PickleValue dest, piece.Get("dest"));
    RankShard& shard = map_.ranks[rank];
    SS_ASSIGN_OR_RETURN(placed.shard, BoxAt(dest, extent, shard.shape));
    SS_ASSIGN_OR_RETURN(const PickleValue locations, piece.Get("locations"));
    SS_ASSIGN_OR_RETURN(const auto ranks, locations.AsInts());
    const Told told = {std::set<int64_t>(ranks.begin(), ranks.end()),
                       locations};
    const auto [it, is_new] = told_.try_emplace(placed.whole, told);
    if (it->second.ranks != told.ranks) {
      return locations.Error(
          absl::StrCat("is not the same as ", it->second.where.Where()));
    }
    placed.is_copy = !is_new;
    if (!holders_[placed.whole].insert(rank).second) {
      return piece.Error("is there twice in one shard");
    }
    shard.pieces.push_back(std::move(placed));
    return absl::OkStatus();
  }

  absl::Status CheckLocations() const {
    for (const auto& [box, told] : told_) {
      if (holders_.at(box) == told.ranks) continue;
      return told.where.Error(absl::StrCat("does not name the ranks that have ",
                                           ckpt::ToString(box),
                                           " of the tensor"));
    }
    return absl::OkStatus();
  }

  const PickleValue& entry_;
  const int64_t num_ranks_;
  ShardMap map_;
  // By boxes of the tensor.
  std::map<ckpt::Box, Told> told_;
  std::map<ckpt::Box, std::set<int64_t>> holders_;
};

}  // namespace

absl::StatusOr<ShardMap> ReadAffineMap(const PickleValue& entry,
                                       int64_t num_ranks) {
  return AffineReader(entry, num_ranks).Read();
}

}  // namespace shardshift::reshard
