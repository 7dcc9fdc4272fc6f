// Which tensors a model has, and how each rank's local parameters are cut from
// them.
//
// A *logical tensor* is what a checkpoint stores: q, k, v, gate and up apart,
// the vocabulary unpadded, tied weights once. A *parameter* is what a rank
// computes with, in Megatron's local form: q, k, v fused by query group, gate
// above up, the vocabulary padded. Every parameter is a list of *pieces*: a box
// of a logical tensor lying dense and contiguous at an offset of the
// parameter. What no piece covers is padding.
//
// Source: parallel-layout.md 4. Which parameters there are: tensor_schema.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_LAYOUT_PARAMETERS_H_
#define SHARDSHIFT_RESHARD_LAYOUT_PARAMETERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/core/box.h"
#include "reshard/layout/model_config.h"
#include "reshard/layout/tensor_schema.h"

namespace shardshift::reshard {

struct LogicalTensor {
  std::string name;
  ckpt::Shape shape;

  bool operator==(const LogicalTensor&) const = default;
};

// Every logical tensor of the model: embeddings, layers in order, final norm,
// output. Positions in this list are the `tensor` of a Piece.
std::vector<LogicalTensor> LogicalTensors(const ModelConfig& model);

// How long that list is, without making it.
// REQUIRES: Validate(model) is OK.
int64_t NumLogicalTensors(const ModelConfig& model);

// `box` of logical tensor `tensor` lies row-major at elements
// [offset, offset + NumElements(box)) of a local buffer.
struct Piece {
  int64_t tensor = 0;
  ckpt::Box box;
  int64_t offset = 0;

  bool operator==(const Piece&) const = default;
};

struct Parameter {
  std::string name;
  Split split = Split::kReplicated;
  ckpt::Shape shape = {};  // local; padding included
  std::vector<Piece> pieces = {};
  // The embedding matrix that also serves as output layer, where pipeline
  // stages hold two copies of it. Each lies in a bucket of its own, so that
  // their optimizer shards line up.
  bool shared_embedding = false;
  // Set on the copy of the last stage, which norms and counts leave out.
  bool is_copy = false;

  int64_t num_elements() const;
};

// One of the ranks that a parameter is cut over.
struct TensorShare {
  int64_t ranks = 1;
  int64_t rank = 0;
};

// The share of a rank in one parameter. `first_tensor` is the position of the
// first of its sources in LogicalTensors.
// REQUIRES: what the split cuts is divisible by the ranks.
Parameter CutParameter(const ModelConfig& model, const ParameterRule& rule,
                       int64_t first_tensor, std::string name,
                       const TensorShare& share);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_LAYOUT_PARAMETERS_H_
