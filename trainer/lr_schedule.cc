// SPDX-License-Identifier: Apache-2.0
#include "trainer/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"

namespace shardshift::trainer {
namespace {

// sum of (-1)^k x^(2k + odd) / (2k + odd)!, the series of cos (odd = 0) and of
// sin (odd = 1); to the last bits of a double for x <= pi / 4.
double Series(double x, int odd) {
  double term = odd == 1 ? x : 1.0;
  double sum = term;
  for (int k = 1; k <= 9; ++k) {
    const int n = 2 * k + odd;
    term = -term * x * x / (n * (n - 1));
    sum += term;
  }
  return sum;
}

// cos(pi * r), exact at 0, 1/2 and 1. REQUIRES: 0 <= r <= 1.
double CosPi(double r) {
  if (r > 0.5) return -CosPi(1 - r);
  if (r > 0.25) return Series(std::numbers::pi * (0.5 - r), 1);
  return Series(std::numbers::pi * r, 0);
}

// The part of max_lr - min_lr that is left at `progress` in [0, 1].
double DecayFactor(LrDecayStyle style, double progress) {
  return style == LrDecayStyle::kLinear ? 1 - progress
                                        : 0.5 * (CosPi(progress) + 1);
}

}  // namespace

absl::string_view LrDecayStyleName(LrDecayStyle style) {
  switch (style) {
    case LrDecayStyle::kConstant:
      return "constant";
    case LrDecayStyle::kLinear:
      return "linear";
    case LrDecayStyle::kCosine:
      return "cosine";
    case LrDecayStyle::kInverseSquareRoot:
      return "inverse-square-root";
  }
  return "unknown";
}

absl::StatusOr<LrDecayStyle> ParseLrDecayStyle(absl::string_view name) {
  for (const LrDecayStyle style :
       {LrDecayStyle::kConstant, LrDecayStyle::kLinear, LrDecayStyle::kCosine,
        LrDecayStyle::kInverseSquareRoot}) {
    if (name == LrDecayStyleName(style)) return style;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("learning rate decay \"", name,
                   "\", expected constant, linear, cosine or "
                   "inverse-square-root"));
}

absl::Status Validate(const LrSchedule& schedule) {
  for (const auto& [flag, rate] :
       {std::pair("--lr", schedule.max_lr),
        std::pair("--min-lr", schedule.min_lr),
        std::pair("--lr-warmup-init", schedule.init_lr)}) {
    if (!std::isfinite(rate) || rate < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " is ", rate, ", expected a number of 0 or more"));
    }
    if (rate > schedule.max_lr) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " ", rate, " exceeds --lr ", schedule.max_lr,
                       "; lower it, or raise --lr"));
    }
  }
  if (schedule.warmup_samples < 0 || schedule.decay_samples <= 0 ||
      schedule.warmup_samples >= schedule.decay_samples) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--lr-warmup-iters: a warm-up of ", schedule.warmup_samples,
        " samples within a decay of ", schedule.decay_samples,
        ", expected 0 <= warm-up < decay"));
  }
  return absl::OkStatus();
}

double LearningRate(const LrSchedule& schedule, int64_t samples) {
  const double max_lr = schedule.max_lr;
  const double min_lr = schedule.min_lr;
  const auto n = static_cast<double>(samples);
  const auto warmup = static_cast<double>(schedule.warmup_samples);
  const auto decay = static_cast<double>(schedule.decay_samples);
  if (schedule.warmup_samples > 0 && samples <= schedule.warmup_samples) {
    return schedule.init_lr + (max_lr - schedule.init_lr) * n / warmup;
  }
  if (schedule.style == LrDecayStyle::kConstant) return max_lr;
  if (samples > schedule.decay_samples) return min_lr;
  if (schedule.style == LrDecayStyle::kInverseSquareRoot) {
    return std::max(min_lr, max_lr * std::sqrt(std::max(warmup, 1.0)) /
                                std::sqrt(std::max(n, 1.0)));
  }
  const double progress = (n - warmup) / (decay - warmup);
  return min_lr + DecayFactor(schedule.style, progress) * (max_lr - min_lr);
}

}  // namespace shardshift::trainer
