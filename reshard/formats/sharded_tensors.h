// Gathers the tensors of a generic source from what model-parallel ranks have:
// shards of them, and copies.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_SHARDED_TENSORS_H_
#define SHARDSHIFT_RESHARD_FORMATS_SHARDED_TENSORS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "reshard/formats/generic_tensors.h"
#include "reshard/formats/shard_map.h"

namespace shardshift::reshard {

using ShardMaps = absl::flat_hash_map<std::string, ShardMap>;  // by name

// Without StartStage(), there is one rank, which has all.
class ShardedTensors {
 public:
  // A pipeline stage, whose tensors have these maps; no maps at all if it has
  // one tensor-parallel rank. What an earlier stage had, too, must be equal.
  void StartStage(ShardMaps maps);
  // What is added next is of that tensor-parallel rank.
  void StartRank(int64_t rank) { rank_ = rank; }

  // As those of GenericTensors. The shapes are those of the rank's shard.
  // Errors: DataLoss for a tensor that the stage has no map of.
  absl::Status AddRun(const GenericInfo& info, int64_t first, int64_t last,
                      int64_t file, int64_t offset_bytes);
  // Errors: also Unimplemented for a shard, or a copy, that is not dense.
  absl::Status AddWhole(const std::string& name, const std::string& role,
                        const TorchTensor& tensor, int64_t file);

  int64_t AddFile(std::string path, int64_t num_bytes) {
    return all_.AddFile(std::move(path), num_bytes);
  }
  void AddCheck(const TorchTensor& tensor, int64_t file) {
    all_.AddCheck(tensor, file);
  }
  const SourceTensors& tensors() const { return all_.tensors(); }
  absl::StatusOr<std::vector<ReplicaCheck>> Replicas() const {
    return all_.Replicas();
  }

 private:
  absl::Status AddPieces(const RankShard& shard, const ckpt::Box& run,
                         const GenericInfo& info, bool is_copy, int64_t file,
                         int64_t offset_bytes);

  GenericTensors all_;
  ShardMaps maps_;
  int64_t rank_ = 0;
  // Names and roles.
  absl::flat_hash_set<std::pair<std::string, std::string>> of_stage_;
  absl::flat_hash_set<std::pair<std::string, std::string>> of_earlier_;
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_SHARDED_TENSORS_H_
