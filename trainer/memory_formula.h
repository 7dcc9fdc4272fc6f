// The memory of a rank in bytes, by formula: what it holds for the whole run,
// and the most that activations, their gradients and scratch take at once.
// Derived in docs/memory.md, beside the formula of Korthikanti et al. 2022.
// RankModel has the measured figures.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_MEMORY_FORMULA_H_
#define SHARDSHIFT_TRAINER_MEMORY_FORMULA_H_

#include <cstdint>

#include "reshard/layout/layout.h"
#include "trainer/activation_options.h"
#include "trainer/run_config.h"

namespace shardshift::trainer {

struct RankMemory {
  int64_t parameter_bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t optimizer_bytes = 0;
  int64_t activation_bytes = 0;
};

// The padding of flat buffers is left out.
// REQUIRES: Validate and CheckTrainable are OK.
RankMemory MemoryByFormula(const RunConfig& config,
                           const reshard::Layout& layout,
                           const ActivationOptions& activations,
                           int64_t micro_batch_size,
                           const reshard::RankCoordinates& at);

// What layer `layer` leaves for the backward pass of a micro-batch.
int64_t LayerActivationBytes(const RunConfig& config,
                             const reshard::Layout& layout,
                             const ActivationOptions& activations,
                             int64_t micro_batch_size, int64_t layer = 0);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_MEMORY_FORMULA_H_
