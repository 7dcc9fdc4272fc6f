// The memory that activations, their gradients and scratch take on a rank, in
// elements, by formula. Derived in docs/memory.md.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_ACTIVATION_FORMULA_H_
#define SHARDSHIFT_TRAINER_ACTIVATION_FORMULA_H_

#include <cstdint>

#include "reshard/layout/layout.h"
#include "trainer/activation_options.h"
#include "trainer/run_config.h"

namespace shardshift::trainer {

// What a norm has for `count` columns or rows: a weight or deviation each, and
// without RMSNorm a bias or mean.
int64_t NormSize(const reshard::ModelConfig& model, int64_t count);

// What layer `layer` leaves for the backward pass of a micro-batch.
int64_t LayerActivations(const RunConfig& config, const reshard::Layout& layout,
                         const ActivationOptions& options,
                         int64_t micro_batch_size, int64_t layer);

// The most at once while pipeline stage `stage` goes through a batch.
int64_t PeakActivations(const RunConfig& config, const reshard::Layout& layout,
                        const ActivationOptions& options,
                        int64_t micro_batch_size, int64_t stage);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_ACTIVATION_FORMULA_H_
