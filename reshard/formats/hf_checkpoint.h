// A Hugging Face folder, or one safetensors file, as a source.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_HF_CHECKPOINT_H_
#define SHARDSHIFT_RESHARD_FORMATS_HF_CHECKPOINT_H_

#include <string>

#include "absl/status/statusor.h"
#include "reshard/formats/foreign_checkpoint.h"

namespace shardshift::reshard {

// With `generic` the tensors keep their keys, and config.json may be missing;
// else they become those of the model that it describes.
// Errors: NotFound without such files; FailedPrecondition for a model that is
// none of our families; DataLoss for damage.
absl::StatusOr<ForeignCheckpoint> ReadHuggingFace(const std::string& path,
                                                  bool generic);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_HF_CHECKPOINT_H_
