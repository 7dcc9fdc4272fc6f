// The factor of the loss in fp16, which keeps small gradients from vanishing:
// constant, or as large as the gradients bear. Source: Micikevicius et al.
// 2018, 3.2; Megatron's grad_scaler.py. Scales are powers of two, so that a
// gradient that neither vanishes nor overflows is the same whatever the scale.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_OPTIM_LOSS_SCALE_H_
#define SHARDSHIFT_TRAINER_OPTIM_LOSS_SCALE_H_

#include <cstdint>

#include "absl/status/status.h"

namespace shardshift::trainer {

struct LossScaling {
  double constant = 0;  // 0: the scale is adapted
  double initial = 0x1p32;
  double min = 1.0;  // it does not fall below
  // Iterations in a row without overflow after which the scale is doubled.
  int64_t window = 1000;
  // Iterations with overflow since it last was, from which on each halves it.
  int64_t hysteresis = 2;

  bool operator==(const LossScaling&) const = default;
};

// What a run keeps of it from iteration to iteration.
struct LossScale {
  double scale = 1.0;
  int64_t growth_tracker = 0;      // iterations without overflow
  int64_t hysteresis_tracker = 0;  // iterations with overflow still for free

  bool operator==(const LossScale&) const = default;
};

LossScale StartLossScale(const LossScaling& scaling);

// After an iteration.
void Adapt(const LossScaling& scaling, bool has_overflowed, LossScale& scale);

// Errors: InvalidArgument naming the flag.
absl::Status Validate(const LossScaling& scaling);

// Errors: InvalidArgument for what Adapt cannot have left.
absl::Status Validate(const LossScale& scale);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_OPTIM_LOSS_SCALE_H_
