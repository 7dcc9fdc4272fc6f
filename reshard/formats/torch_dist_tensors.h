// The tensors of a Megatron `torch_dist` checkpoint in terms of logical ones:
// those of a model on one rank, layers and experts stacked.
// Source: checkpoint-formats.md 3.3, distributed-optimizer.md 2.3 to 2.6.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_TENSORS_H_
#define SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_TENSORS_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/formats/source_tensors.h"
#include "reshard/formats/stored_tensor.h"
#include "reshard/layout/model_config.h"

namespace shardshift::reshard {

using TensorsByKey = absl::flat_hash_map<std::string, const SourceTensor*>;

TensorsByKey IndexByKey(const SourceTensors& source);

// Where a parameter lies: under a key, and at which index of the dims that come
// before its own there, those of layers and experts.
struct StackPlace {
  std::string key;
  ckpt::Shape index;
};

struct TorchDistModel {
  std::vector<StoredTensor> tensors;
  absl::flat_hash_map<std::string, StackPlace> places;  // by parameter
};

// Every tensor of the model, under the one of its keys that `present` has:
// fused norms or not, layers stacked or each for itself.
// Errors: DataLoss naming the parameter that is missing.
absl::StatusOr<TorchDistModel> TorchDistTensors(const ModelConfig& model,
                                                const TensorsByKey& present);

// A tensor with the given shape that was stored as flat ranges of its shards
// (fully_sharded_model_space), in that shape again; another is left as it is.
// Errors: DataLoss if the two do not fit.
absl::StatusOr<SourceTensor> InModelSpace(const SourceTensor& source,
                                          const ckpt::Shape& shape);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_TENSORS_H_
