// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope_table.h"

#include <numbers>

#include "kernels/math.h"

namespace shardshift::kernels {
namespace {

double Scale(double frequency, const RopeScaling& scaling) {
  const double wave = 2.0 * std::numbers::pi / frequency;
  const double original = scaling.original_max_positions;
  if (wave < original / scaling.high) return frequency;
  if (wave > original / scaling.low) return frequency / scaling.factor;
  const double kept =
      (original / wave - scaling.low) / (scaling.high - scaling.low);
  return (1.0 - kept) * (frequency / scaling.factor) + kept * frequency;
}

}  // namespace

std::vector<double> RopeFrequencies(const RopeFrequencyArgs& args) {
  const int64_t half = args.head_dim / 2;
  const double log_base = Log(args.base);
  std::vector<double> frequencies(half);
  for (int64_t j = 0; j < half; ++j) {
    double& frequency = frequencies[j];
    frequency = Exp(-log_base * static_cast<double>(2 * j) /
                    static_cast<double>(args.head_dim));
    frequency /= args.interpolation;
    if (args.scaling.has_value()) frequency = Scale(frequency, *args.scaling);
  }
  return frequencies;
}

void BuildRopeTable(std::span<const double> frequencies, int64_t max_positions,
                    float* cos, float* sin) {
  for (int64_t p = 0; p < max_positions; ++p) {
    for (const double frequency : frequencies) {
      const SinCosResult value = SinCos(static_cast<double>(p) * frequency);
      *cos++ = static_cast<float>(value.cos);
      *sin++ = static_cast<float>(value.sin);
    }
  }
}

}  // namespace shardshift::kernels
