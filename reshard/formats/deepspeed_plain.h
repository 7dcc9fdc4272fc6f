// A DeepSpeed checkpoint without ZeRO: the optimizer lies in the model's file.
// Source: distributed-optimizer.md 4.5.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_PLAIN_H_
#define SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_PLAIN_H_

#include <cstdint>

#include "absl/status/status.h"
#include "reshard/formats/deepspeed_files.h"
#include "reshard/formats/deepspeed_model.h"

namespace shardshift::reshard {

// Adds the weights, and `master` and the states of what the optimizer has.
//
// The file numbers the optimizer's parameters and does not name them. Those of
// a shape are taken to be in the module's order, as model.parameters() gives
// them, where all of that shape are in one group; a note says so.
// Errors: Unimplemented where that does not tell which is which, and for other
// optimizers than torch's and FP16_UnfusedOptimizer.
absl::Status AddPlain(const OpenedTorch& source, const DeepSpeedModel& model,
                      int64_t file, DeepSpeedContents& contents);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_PLAIN_H_
