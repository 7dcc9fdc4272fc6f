// The order of sums inside one leaf that is never split over ranks.
//
// A lane sum adds term i to lane i mod 16, terms in ascending order, each lane
// from +0; then lanes are folded in halves: lane l gets lane l + 8, then l + 4,
// l + 2, l + 1. Sixteen lanes are one AVX-512 register or two of AVX2.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_LANE_SUM_H_
#define SHARDSHIFT_KERNELS_LANE_SUM_H_

#include <array>
#include <cmath>
#include <cstdint>

namespace shardshift::kernels {

inline constexpr int64_t kLanes = 16;

// Not for the vector backends: these use registers in the same order.
class LaneSum {
 public:
  // Adds term `index`. REQUIRES: index ascends over the calls.
  void Add(int64_t index, float term) {
    float& lane = lanes_[index % kLanes];
    lane = lane + term;
  }
  // Adds the product a b as term `index`, with one rounding.
  void AddProduct(int64_t index, float a, float b) {
    float& lane = lanes_[index % kLanes];
    lane = std::fmaf(a, b, lane);
  }
  float Total() const {
    std::array<float, kLanes> lanes = lanes_;
    for (int64_t half = kLanes / 2; half > 0; half /= 2) {
      for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    return lanes[0];
  }

 private:
  std::array<float, kLanes> lanes_ = {};
};

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_LANE_SUM_H_
