// SPDX-License-Identifier: Apache-2.0
#include "tools/resolve_activations.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace shardshift {
namespace {

using trainer::RecomputeGranularity;
using trainer::RecomputeMethod;

// The flags are choices of CLI11's, so that each has a value.
std::optional<RecomputeGranularity> GivenGranularity(
    const ActivationFlags& flags) {
  if (!flags.recompute_granularity.has_value()) return std::nullopt;
  return trainer::ParseRecomputeGranularity(*flags.recompute_granularity)
      .value();
}

std::optional<RecomputeMethod> GivenMethod(const ActivationFlags& flags) {
  if (!flags.recompute_method.has_value()) return std::nullopt;
  return trainer::ParseRecomputeMethod(*flags.recompute_method).value();
}

// Full recomputation needs its two flags, other runs have no use for them.
void SetRecompute(const ActivationFlags& flags, trainer::Recompute& recompute,
                  Overlay& overlay) {
  const bool was_full = recompute.granularity == RecomputeGranularity::kFull;
  overlay.Set("--recompute-granularity", GivenGranularity(flags),
              recompute.granularity, Change::kFree);
  const bool is_full = recompute.granularity == RecomputeGranularity::kFull;
  const std::pair<const char*, bool> needed[] = {
      {"--recompute-method", flags.recompute_method.has_value()},
      {"--recompute-num-layers", flags.recompute_num_layers.has_value()}};
  for (const auto& [flag, is_given] : needed) {
    if (is_given && !is_full) {
      overlay.Refuse(
          absl::StrCat(flag, " goes with --recompute-granularity full"));
    } else if (is_full && !was_full && !is_given) {
      overlay.Refuse(absl::StrCat("--recompute-granularity full needs ", flag));
    }
  }
  if (!is_full) recompute = {.granularity = recompute.granularity};
  overlay.Set("--recompute-method", GivenMethod(flags), recompute.method,
              Change::kFree);
  overlay.Set("--recompute-num-layers", flags.recompute_num_layers,
              recompute.num_layers, Change::kFree);
}

}  // namespace

void SetActivations(const ActivationFlags& flags,
                    trainer::ActivationOptions& options, Overlay& overlay) {
  overlay.Set("--sequence-parallel", flags.sequence_parallel,
              options.sequence_parallel, Change::kFree);
  SetRecompute(flags, options.recompute, overlay);
}

}  // namespace shardshift
