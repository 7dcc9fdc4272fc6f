// What the reader of a foreign format makes of a checkpoint.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_FOREIGN_CHECKPOINT_H_
#define SHARDSHIFT_RESHARD_FORMATS_FOREIGN_CHECKPOINT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/foreign_files.h"
#include "reshard/formats/storage_check.h"

namespace shardshift::reshard {

// What a reader of a format cannot tell by itself.
struct ForeignOptions {
  bool generic = false;       // tensors under the keys they have
  bool weights_only = false;  // no optimizer state, though there be some
  // The true one, where the source does not hold it.
  std::optional<int64_t> vocab_size = std::nullopt;
};

struct ForeignCheckpoint {
  ckpt::ForeignFiles files;
  // The weights, where `files` have the masters instead.
  std::optional<ckpt::ForeignFiles> weights;
  std::vector<StorageCheck> checks;  // of what the files' values lie in
  std::vector<ReplicaCheck> replicas;
  std::vector<std::string> notes;     // as in OpenedSource
  std::vector<std::string> left_out;  // as in OpenedSource
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_FOREIGN_CHECKPOINT_H_
