// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/loss_scale.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace shardshift::trainer {
namespace {

constexpr double kGrowth = 2.0;
constexpr double kBackoff = 0.5;
// Gradients this large times smaller than the loss are none.
constexpr double kMostScale = 0x1p64;

bool IsScale(double value) {
  int exponent = 0;
  return value >= 1.0 && value <= kMostScale &&
         std::frexp(value, &exponent) == 0.5;
}

absl::Status CheckScale(const char* flag, double value) {
  if (IsScale(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      flag, " is ", value, ", expected a power of two from 1 to 2^64"));
}

}  // namespace

LossScale StartLossScale(const LossScaling& scaling) {
  if (scaling.constant > 0) return {.scale = scaling.constant};
  return {.scale = scaling.initial, .hysteresis_tracker = scaling.hysteresis};
}

void Adapt(const LossScaling& scaling, bool has_overflowed, LossScale& scale) {
  if (scaling.constant > 0) return;
  if (!has_overflowed) {
    if (++scale.growth_tracker < scaling.window) return;
    scale.growth_tracker = 0;
    scale.hysteresis_tracker = scaling.hysteresis;
    if (scale.scale < kMostScale) scale.scale *= kGrowth;
    return;
  }
  scale.growth_tracker = 0;
  if (scale.hysteresis_tracker > 1) {
    --scale.hysteresis_tracker;
    return;
  }
  scale.hysteresis_tracker = 0;
  scale.scale = std::max(scale.scale * kBackoff, scaling.min);
}

absl::Status Validate(const LossScaling& scaling) {
  absl::Status status = CheckScale("--initial-loss-scale", scaling.initial);
  status.Update(CheckScale("--min-loss-scale", scaling.min));
  if (scaling.constant != 0) {
    status.Update(CheckScale("--loss-scale", scaling.constant));
  }
  if (scaling.initial < scaling.min) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("--initial-loss-scale is ", scaling.initial,
                     ", less than --min-loss-scale ", scaling.min)));
  }
  const auto check_count = [&status](const char* flag, int64_t count) {
    if (count >= 1) return;
    status.Update(absl::InvalidArgumentError(
        absl::StrCat(flag, " is ", count, ", expected 1 or more")));
  };
  check_count("--loss-scale-window", scaling.window);
  check_count("--hysteresis", scaling.hysteresis);
  return status;
}

absl::Status Validate(const LossScale& scale) {
  if (IsScale(scale.scale) && scale.growth_tracker >= 0 &&
      scale.hysteresis_tracker >= 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "loss scale ", scale.scale, " with growth tracker ", scale.growth_tracker,
      " and hysteresis tracker ", scale.hysteresis_tracker));
}

}  // namespace shardshift::trainer
