// What a model consists of, as data: its parameters in Megatron's registration
// order, the logical tensors each is made of, and their positions in
// LogicalTensors. Every layer is alike, so a position is arithmetic: no list of
// names is needed to find it. Model families are rule tables in
// tensor_schema.cc.
// Source: parallel-layout.md 4 (splits), 5 (registration order) and 6.6
// (experts; each as a module of its own).
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_LAYOUT_TENSOR_SCHEMA_H_
#define SHARDSHIFT_RESHARD_LAYOUT_TENSOR_SCHEMA_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "ckpt/core/box.h"
#include "reshard/layout/model_config.h"

namespace shardshift::reshard {

// How a parameter is cut over tensor-parallel ranks.
enum class Split {
  kReplicated,  // whole on every rank
  kRows,        // an equal share of the rows of each source, one after another
  kColumns,     // an equal share of the columns
  kQkv,  // an equal share of rows fused by query group: its q heads, k, v
  kVocabulary,  // an equal share of the padded rows
};

inline constexpr int64_t kMaxSources = 3;

// A logical tensor that a parameter is made of.
struct TensorSource {
  const char* name;
  ckpt::Shape shape;
};

struct ParameterRule {
  const char* name;
  Split split;
  // Of its sources, which are neighbours; from the first tensor of its group.
  int64_t first_tensor = 0;
  absl::InlinedVector<TensorSource, kMaxSources> sources = {};
};

// Parameters that share a prefix and the ranks they are cut over: tensor
// parallel, or expert and expert tensor parallel.
struct TensorGroup {
  std::string prefix;
  int64_t copies = 1;  // one for each expert
  bool per_expert = false;
  int64_t first_tensor = 0;  // of the model, or within a layer
  int64_t tensors_per_copy = 0;
  std::vector<ParameterRule> rules = {};

  int64_t num_tensors() const { return copies * tensors_per_copy; }
  std::string PrefixOf(int64_t copy) const;
};

struct TensorSchema {
  explicit TensorSchema(const ModelConfig& model);

  TensorGroup embedding;
  std::vector<TensorGroup> layer;
  TensorGroup output;
  // The output layer where it is a copy of the embedding.
  TensorGroup tied_output;
  int64_t first_layer_tensor = 0;
  int64_t tensors_per_layer = 0;
};

// "layers.3."
std::string LayerPrefix(int64_t layer);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_LAYOUT_TENSOR_SCHEMA_H_
