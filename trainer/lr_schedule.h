// The learning rate as a function of the samples consumed, less those of
// skipped iterations: no state, nothing to replay on a resume.
// Equations: Megatron's optimizer_param_scheduler; all in double, without the
// C library's cos, whose last bit depends on the machine.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LR_SCHEDULE_H_
#define SHARDSHIFT_TRAINER_LR_SCHEDULE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shardshift::trainer {

enum class LrDecayStyle { kConstant, kLinear, kCosine, kInverseSquareRoot };

// "constant", "linear", "cosine", "inverse-square-root".
absl::string_view LrDecayStyleName(LrDecayStyle style);
// Errors: InvalidArgument for any other name.
absl::StatusOr<LrDecayStyle> ParseLrDecayStyle(absl::string_view name);

struct LrSchedule {
  LrDecayStyle style = LrDecayStyle::kLinear;
  double max_lr = 0;
  double min_lr = 0;
  double init_lr = 0;          // where the warm-up begins
  int64_t warmup_samples = 0;  // 0: no warm-up
  int64_t decay_samples = 0;   // the rate is min_lr beyond
};

// Errors: InvalidArgument naming the field that cannot be.
absl::Status Validate(const LrSchedule& schedule);

// The rate of an iteration before which `samples` samples had been consumed.
// REQUIRES: Validate(schedule) is OK, samples >= 0.
double LearningRate(const LrSchedule& schedule, int64_t samples);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LR_SCHEDULE_H_
