// A PyTorch distributed checkpoint of a model that Hugging Face has too, as a
// source: what FSDP saves, with the state of AdamW or without.
// Source: checkpoint-formats.md 2.3, and PyTorch 2.15.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_DCP_MODEL_H_
#define SHARDSHIFT_RESHARD_FORMATS_DCP_MODEL_H_

#include <string>

#include "absl/status/statusor.h"
#include "reshard/formats/foreign_checkpoint.h"

namespace shardshift::reshard {

// The tensors as those of the model that a config.json in the directory, or in
// the one above it, describes: weights, or if the optimizer's state is there
// masters, exp_avg and exp_avg_sq.
// Errors: FailedPrecondition without a config.json, or for tensors that are not
// those of the model; DataLoss naming a state that is missing, or steps that
// differ; as ReadDcp.
absl::StatusOr<ForeignCheckpoint> ReadDcpModel(const std::string& directory,
                                               const ForeignOptions& options);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DCP_MODEL_H_
