// Which tensors a checkpoint must hold and what each value is, worked out with
// plain loops: nothing here asks the rules or plans that `reshard` follows.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_RESHARD_TENSOR_ORACLE_H_
#define SHARDSHIFT_TESTS_RESHARD_TENSOR_ORACLE_H_

#include <map>
#include <string>

#include "ckpt/core/box.h"
#include "ckpt/reader.h"
#include "reshard/layout/model_config.h"

namespace shardshift::reshard {

// Every logical tensor of a model, and its shape.
std::map<std::string, ckpt::Shape> TensorShapes(const ModelConfig& model);

// The values of WriteSynth: every tensor that the model has, under every role,
// is there as F32 and has, read fragment by fragment, the value of each global
// index; and no other is there.
void ExpectSynthTensors(const ckpt::Reader& reader, const ModelConfig& model);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_TESTS_RESHARD_TENSOR_ORACLE_H_
