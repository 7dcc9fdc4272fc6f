// What the reader of a foreign format makes of a checkpoint.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_FOREIGN_CHECKPOINT_H_
#define SHARDSHIFT_RESHARD_FORMATS_FOREIGN_CHECKPOINT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/core/box.h"
#include "ckpt/foreign_files.h"
#include "reshard/formats/storage_check.h"

namespace shardshift::reshard {

// What a reader of a format cannot tell by itself.
struct ForeignOptions {
  bool generic = false;       // tensors under the keys they have
  bool weights_only = false;  // no optimizer state, though there be some
  // The true one, where the source does not hold it.
  std::optional<int64_t> vocab_size = std::nullopt;
  // Optimizer state that Megatron has shifted is put back (torch_dist_shift.h).
  bool repair_shifted = false;
};

// Elements of a tensor whose optimizer state is in no file, of each role.
struct LostFromTensor {
  std::string tensor;
  int64_t count = 0;
  int64_t of = 0;                // all of the tensor's
  std::vector<ckpt::Box> boxes;  // the first ones
  int64_t more_boxes = 0;
};

struct ForeignCheckpoint {
  ckpt::ForeignFiles files;
  // The weights, where `files` have the masters instead.
  std::optional<ckpt::ForeignFiles> weights;
  std::vector<StorageCheck> checks;  // of what the files' values lie in
  std::vector<ReplicaCheck> replicas;
  std::vector<LostFromTensor> lost;   // in the order of the model
  std::vector<std::string> notes;     // as in OpenedSource
  std::vector<std::string> left_out;  // as in OpenedSource
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_FOREIGN_CHECKPOINT_H_
