// How many steps an optimizer has made, of which it keeps many copies: Megatron
// in pickles, PyTorch in tensors.
// Source: distributed-optimizer.md 1.4 and 2.6.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_MEGATRON_STEPS_H_
#define SHARDSHIFT_RESHARD_FORMATS_MEGATRON_STEPS_H_

#include <cstdint>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/io/file.h"
#include "reshard/formats/pickle_value.h"
#include "reshard/formats/torch_file.h"

namespace shardshift::reshard {

class OptimizerSteps {
 public:
  // Notes every `step` and `common_step` within the state of an optimizer:
  // numbers, and tensors of one element. Errors: as ReadTensor.
  absl::Status Collect(const ckpt::File& file, const TorchFile& torch,
                       const PickleValue& optimizer);

  // Errors: DataLoss for what is no number of steps.
  absl::Status Add(double step);

  // The one step of all parameters; nullopt if none was told.
  // Errors: DataLoss if they differ.
  absl::StatusOr<std::optional<int64_t>> TheOne() const;

 private:
  std::set<int64_t> steps_;
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_MEGATRON_STEPS_H_
