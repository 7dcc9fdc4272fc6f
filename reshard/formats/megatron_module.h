// The parameters of one model chunk in a legacy Megatron file, matched with
// ours.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_MEGATRON_MODULE_H_
#define SHARDSHIFT_RESHARD_FORMATS_MEGATRON_MODULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/formats/megatron_names.h"
#include "reshard/formats/torch_file.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

struct ModuleParameter {
  std::string name;  // Megatron's
  TorchTensor tensor;
  const Parameter* parameter = nullptr;
  bool is_expert = false;
};

struct Module {
  // In the order of the file, which is that of registration.
  std::vector<ModuleParameter> parameters;
  std::vector<std::string> ignored;  // names of state of other kinds
};

// `parameters`: of the rank and chunk, under their global names.
// Errors: DataLoss naming a parameter that is missing, unknown, not dense, or
// of another shape.
absl::StatusOr<Module> ReadModule(
    const TorchFile& file, const PickleValue& module,
    const std::vector<const Parameter*>& parameters);

// The parameters as a module without a file has them, in the order in which
// Megatron registers them: of its own implementation of the layer the norm of
// the attention comes first, of Transformer Engine's it is part of the
// projection; of a grouped module of experts the first matrices of all come
// before the second ones. Names are those in the chunk.
Module ModuleInOrder(const std::vector<Parameter>& parameters,
                     const LayerStyle& style);

// Whether its group of the optimizer decays: matrices do, biases and norms do
// not.
bool Decays(const ModuleParameter& parameter);

// Those that lie in the flat buffer of the experts, or in the other; without a
// buffer of their own experts lie there, too.
std::vector<const ModuleParameter*> ParametersOfBuffer(const Module& module,
                                                       const Layout& layout,
                                                       bool experts);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_MEGATRON_MODULE_H_
