// The exact reductions: their results do not depend on any order.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_COMM_EXACT_OPS_H_
#define SHARDSHIFT_TRAINER_COMM_EXACT_OPS_H_

#include <cmath>
#include <cstdint>
#include <limits>

namespace shardshift::trainer {

// A maximum that does not depend on the order of its arguments.
inline float MaxOf(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  if (a == b) return std::signbit(a) ? b : a;
  return a < b ? b : a;
}

inline int64_t WrappingSum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) +
                              static_cast<uint64_t>(b));
}

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_COMM_EXACT_OPS_H_
