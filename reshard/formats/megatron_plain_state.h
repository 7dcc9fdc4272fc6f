// The state of torch's own optimizer in a legacy Megatron file, without the
// distributed one.
// Source: distributed-optimizer.md 1.2.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_MEGATRON_PLAIN_STATE_H_
#define SHARDSHIFT_RESHARD_FORMATS_MEGATRON_PLAIN_STATE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/formats/megatron_module.h"
#include "reshard/formats/megatron_state_adder.h"
#include "reshard/formats/pickle_value.h"
#include "reshard/formats/torch_file.h"

namespace shardshift::reshard {

// Adds masters and moments of the parameters of `modules`, from the value that
// `torch`, number `file` of the builder, has under "optimizer". Gives whether
// it has made a step: before, torch has no moments, which are then zeros.
// Errors: DataLoss naming what is missing, or does not fit the parameters.
absl::StatusOr<bool> AddPlainState(const TorchFile& torch, int64_t file,
                                   const PickleValue& optimizer,
                                   const std::vector<Module>& modules,
                                   StateAdder& adder);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_MEGATRON_PLAIN_STATE_H_
