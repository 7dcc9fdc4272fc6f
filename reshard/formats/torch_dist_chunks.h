// How Megatron cuts a parameter into the chunks of a `torch_dist` checkpoint,
// and what it calls the whole: layers and experts are stacked.
// Source: checkpoint-formats.md 3.2 and 3.3; megatron/core/transformer/
// {transformer_block,mlp}.py and moe/experts.py at core_v0.16.1.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_CHUNKS_H_
#define SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_CHUNKS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "ckpt/core/box.h"
#include "reshard/formats/megatron_names.h"
#include "reshard/layout/model_config.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

// A key that a parameter is stored under, and its place in the stack there.
struct StackedKey {
  std::string key;
  ckpt::Shape stack = {};  // the extents before those of the parameter
  ckpt::Shape at = {};     // in the stack

  bool operator==(const StackedKey&) const = default;
};

// The keys that readers have to know; with layers stacked, and each for itself.
// REQUIRES: as MegatronNames.
std::vector<StackedKey> TorchDistKeys(const ParameterName& name,
                                      const ModelConfig& model);

// The one that is written.
StackedKey TorchDistKey(const ParameterName& name, const ModelConfig& model,
                        const LayerStyle& style);

// The key of an object of a stack.
std::string ObjectKey(const StackedKey& key);

// What Megatron's modules keep beside their weights: in every checkpoint, and
// nothing but None unless they compute in 8 bits. A loader wants all of them.
std::vector<StackedKey> ExtraStates(const ModelConfig& model,
                                    const LayerStyle& style);

// A box of the parameter as a model on one rank has it, and the pieces of the
// rank's own that lie in it, from `offset` of the rank's on.
struct ParameterChunk {
  ckpt::Box box;
  size_t first_piece = 0;
  size_t num_pieces = 0;
  int64_t offset = 0;  // in elements
};

// The parameter as a model on one rank has it.
ckpt::Shape WholeShape(const Parameter& parameter, const TensorShare& share);

// What a rank writes: one chunk, but two where gate and up lie one upon the
// other in it. REQUIRES: `parameter` is that of the share.
std::vector<ParameterChunk> ChunksOf(const Parameter& parameter,
                                     const TensorShare& share);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_TORCH_DIST_CHUNKS_H_
