// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/sharded_tensors.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/dense_parts.h"

namespace shardshift::reshard {

void ShardedTensors::StartStage(ShardMaps maps) {
  of_earlier_.insert(of_stage_.begin(), of_stage_.end());
  of_stage_.clear();
  maps_ = std::move(maps);
  rank_ = 0;
}

absl::Status ShardedTensors::AddRun(const GenericInfo& info, int64_t first,
                                    int64_t last, int64_t file,
                                    int64_t offset_bytes) {
  of_stage_.emplace(info.name, info.role);
  const bool is_copy = of_earlier_.contains(std::pair(info.name, info.role));
  if (maps_.empty() && !is_copy) {
    return all_.AddRun(info, first, last, file, offset_bytes);
  }
  GenericInfo whole = info;
  const ckpt::Box box = ckpt::WholeBox(info.shape);
  const RankShard all = {info.shape, {{box, box, is_copy}}};
  const RankShard* shard = &all;
  if (!maps_.empty()) {
    const auto map = maps_.find(info.name);
    if (map == maps_.end()) {
      return absl::DataLossError(absl::StrCat(
          info.name, " is not there on all tensor-parallel ranks"));
    }
    shard = &map->second.ranks[rank_];
    whole.shape = map->second.shape;
  }
  if (ckpt::NumElements(whole.shape) == 0) {
    if (is_copy || rank_ > 0) return absl::OkStatus();
    return all_.AddRun(whole, 0, 0, file, offset_bytes);
  }
  for (const ckpt::Box& run :
       ckpt::RowMajorRange(ckpt::WholeBox(shard->shape), first, last)) {
    SS_RETURN_IF_ERROR(
        AddPieces(*shard, run, whole, is_copy, file, offset_bytes));
    offset_bytes += ckpt::NumElements(run) * ckpt::ItemSize(info.dtype);
  }
  return absl::OkStatus();
}

// Of the elements of box `run` of the shard, which lie densely there.
absl::Status ShardedTensors::AddPieces(const RankShard& shard,
                                       const ckpt::Box& run,
                                       const GenericInfo& info, bool is_copy,
                                       int64_t file, int64_t offset_bytes) {
  for (const ShardPiece& piece : shard.pieces) {
    const std::optional<ckpt::Box> common = ckpt::Intersect(run, piece.shard);
    if (!common.has_value()) continue;
    for (DensePart& part : DenseParts(run, *common)) {
      ckpt::Box& box = part.box;
      for (size_t d = 0; d < box.start.size(); ++d) {
        box.start[d] += piece.whole.start[d] - piece.shard.start[d];
      }
      const int64_t place =
          offset_bytes + part.offset * ckpt::ItemSize(info.dtype);
      SS_RETURN_IF_ERROR(is_copy || piece.is_copy
                             ? all_.AddCopy(info, std::move(box), file, place)
                             : all_.AddBox(info, std::move(box), file, place));
    }
  }
  return absl::OkStatus();
}

absl::Status ShardedTensors::AddWhole(const std::string& name,
                                      const std::string& role,
                                      const TorchTensor& tensor, int64_t file) {
  if (maps_.empty() && !of_earlier_.contains(std::pair(name, role))) {
    of_stage_.emplace(name, role);
    return all_.AddWhole(name, role, tensor, file);
  }
  if (!tensor.IsDense()) {
    return absl::UnimplementedError(absl::StrCat(
        name, " is a shard, or a copy, with strides ",
        ckpt::ToString(tensor.strides), "; expected one that lies densely"));
  }
  AddCheck(tensor, file);
  return AddRun({name, role, tensor.dtype, tensor.shape}, 0,
                ckpt::NumElements(tensor.shape), file, tensor.offset_bytes);
}

}  // namespace shardshift::reshard
