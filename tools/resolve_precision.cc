// SPDX-License-Identifier: Apache-2.0
#include "tools/resolve_precision.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace shardshift {

using trainer::Precision;

void SetPrecision(const PrecisionFlags& flags, Precision& precision,
                  trainer::LossScaling& scaling, Overlay& overlay) {
  std::optional<Precision> given;
  if (flags.precision.has_value()) {
    given = trainer::ParsePrecision(*flags.precision).value();
  }
  overlay.Set("the precision", given, precision, Change::kFree);
  const std::pair<const char*, bool> of_fp16[] = {
      {"--loss-scale", flags.loss_scale.has_value()},
      {"--initial-loss-scale", flags.initial_loss_scale.has_value()},
      {"--min-loss-scale", flags.min_loss_scale.has_value()},
      {"--loss-scale-window", flags.loss_scale_window.has_value()},
      {"--hysteresis", flags.hysteresis.has_value()}};
  for (const auto& [flag, is_given] : of_fp16) {
    if (!is_given || precision == Precision::kFp16) continue;
    overlay.Refuse(absl::StrCat(flag, " goes with --fp16; the run is in ",
                                trainer::Name(precision),
                                ", which needs no loss scale"));
  }
  overlay.Set("--loss-scale", flags.loss_scale, scaling.constant,
              Change::kFree);
  overlay.Set("--initial-loss-scale", flags.initial_loss_scale, scaling.initial,
              Change::kFree);
  overlay.Set("--min-loss-scale", flags.min_loss_scale, scaling.min,
              Change::kFree);
  overlay.Set("--loss-scale-window", flags.loss_scale_window, scaling.window,
              Change::kFree);
  overlay.Set("--hysteresis", flags.hysteresis, scaling.hysteresis,
              Change::kFree);
}

}  // namespace shardshift
