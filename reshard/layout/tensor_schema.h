// What a model consists of, as data: its parameters in Megatron's registration
// order, the logical tensors each is made of, and their positions in
// LogicalTensors. Layers with experts are all alike, and so are those without,
// so a position is arithmetic: no list of names is needed to find it. Model
// families are rule tables in tensor_schema.cc.
// Source: parallel-layout.md 4 (splits), 5 (registration order) and 6.6
// (experts; each as a module of its own).
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_LAYOUT_TENSOR_SCHEMA_H_
#define SHARDSHIFT_RESHARD_LAYOUT_TENSOR_SCHEMA_H_

#include <algorithm>
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

// What a layer consists of.
struct LayerSchema {
  explicit LayerSchema(const ModelConfig& model);

  std::vector<TensorGroup> groups;
  int64_t num_tensors = 0;
};

struct TensorSchema {
  explicit TensorSchema(const ModelConfig& model);

  TensorGroup embedding;
  TensorGroup output;
  // The output layer where it is a copy of the embedding.
  TensorGroup tied_output;

  const LayerSchema& LayerOf(int64_t layer) const {
    return std::ranges::binary_search(dense_layers_, layer) ? dense_layer_
                                                            : layer_;
  }
  // Of layer `layer`, or behind the last one.
  int64_t FirstTensorOf(int64_t layer) const;

 private:
  LayerSchema layer_;
  LayerSchema dense_layer_;  // of a model whose other layers have experts
  std::vector<int64_t> dense_layers_;
};

// "layers.3."
std::string LayerPrefix(int64_t layer);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_LAYOUT_TENSOR_SCHEMA_H_
