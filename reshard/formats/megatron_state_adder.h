// Adds the state of one rank's parameters to a table of foreign files.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_MEGATRON_STATE_ADDER_H_
#define SHARDSHIFT_RESHARD_FORMATS_MEGATRON_STATE_ADDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/core/dtype.h"
#include "ckpt/foreign_files.h"
#include "reshard/formats/megatron_module.h"
#include "reshard/formats/megatron_optimizer.h"
#include "reshard/formats/pickle_value.h"
#include "reshard/formats/source_tensors.h"
#include "reshard/formats/torch_file.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

// Owns neither. Errors of the adders: as ForeignFilesBuilder::Add.
class StateAdder {
 public:
  StateAdder(const OptimizerSource& source, ckpt::ForeignFilesBuilder& builder)
      : source_(source), builder_(builder) {}

  absl::StatusOr<int64_t> AddFile(const std::string& path);

  // The pieces of a parameter that begins at `offset_bytes` of the file.
  absl::Status AddParameter(const Parameter& parameter, const char* role,
                            ckpt::DType dtype, int64_t file,
                            int64_t offset_bytes);

  // Zeros in F32, which no file holds.
  absl::Status AddZeros(const Parameter& parameter, const char* role);

  // A parameter that begins at element `begin` of a flat tensor.
  absl::Status AddFlat(const Parameter& parameter, int64_t begin,
                       const SourceTensor& flat, const char* role);

  // The optimizer that `root` of file `path` is, or where experts have ranks of
  // their own, that of the dense parameters and that of the experts.
  // Errors: DataLoss for another number of them.
  absl::StatusOr<std::vector<PickleValue>> OptimizersIn(
      const PickleValue& root, const std::string& path) const;

  void AddCheck(const std::string& path, const TorchTensor& tensor) {
    source_.checks->push_back(CheckOf(path, tensor));
  }

  const OptimizerSource& source() const { return source_; }
  // Whether no other rank is the one to tell of it.
  bool IsMine(const ModuleParameter& parameter) const {
    return IsTold(parameter, source_.is_first_tensor_rank,
                  source_.is_first_expert_rank);
  }

 private:
  const OptimizerSource& source_;
  ckpt::ForeignFilesBuilder& builder_;
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_MEGATRON_STATE_ADDER_H_
