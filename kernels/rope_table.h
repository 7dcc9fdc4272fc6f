// The angles of the rotary position embedding (rope.h): plain, interpolated
// (Chen et al. 2023) and those of Llama 3.
// Source: parallel-layout.md 4.13.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_ROPE_TABLE_H_
#define SHARDSHIFT_KERNELS_ROPE_TABLE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace shardshift::kernels {

// The frequencies of Llama 3: waves of more than original / low positions are
// stretched by `factor`, those of less than original / high stay, and between
// them the stretch goes over from one to the other.
struct RopeScaling {
  double factor = 8.0;
  double low = 1.0;
  double high = 4.0;
  double original_max_positions = 8192.0;
};

// frequency[j] = base^(-2j/head_dim) / interpolation, head_dim/2 of them, then
// scaled. In double by math.h, so that they are the same on every machine.
struct RopeFrequencyArgs {
  double base = 10000.0;
  int64_t head_dim = 0;
  double interpolation = 1.0;
  std::optional<RopeScaling> scaling = std::nullopt;
};
std::vector<double> RopeFrequencies(const RopeFrequencyArgs& args);

// Fills cos and sin, [max_positions, frequencies] each; angles as above.
void BuildRopeTable(std::span<const double> frequencies, int64_t max_positions,
                    float* cos, float* sin);

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_ROPE_TABLE_H_
