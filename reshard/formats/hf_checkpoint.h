// A Hugging Face folder, or one safetensors file, as a source.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_HF_CHECKPOINT_H_
#define SHARDSHIFT_RESHARD_FORMATS_HF_CHECKPOINT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ckpt/foreign_files.h"

namespace shardshift::reshard {

// What a format's reader makes of a checkpoint.
struct ForeignCheckpoint {
  ckpt::ForeignFiles files;
  std::vector<std::string> left_out;  // as in OpenedSource
};

// With `generic` the tensors keep their keys, and config.json may be missing;
// else they become those of the model that it describes.
// Errors: NotFound without such files; FailedPrecondition for a model that is
// none of our families; DataLoss for damage.
absl::StatusOr<ForeignCheckpoint> ReadHuggingFace(const std::string& path,
                                                  bool generic);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_HF_CHECKPOINT_H_
