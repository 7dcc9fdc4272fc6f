// Where the elements of parameters lie in the flat arrays of ZeRO's ranks.
// Source: distributed-optimizer.md 4.2 and 4.3.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_ZERO_SLICES_H_
#define SHARDSHIFT_RESHARD_FORMATS_ZERO_SLICES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace shardshift::reshard {

// Elements [first, last) of a parameter, from element `offset` of the array on.
struct ZeroSlice {
  size_t parameter = 0;
  int64_t first = 0;
  int64_t last = 0;
  int64_t offset = 0;
};

// A rank's array for a group.
struct ZeroArray {
  int64_t size = 0;  // elements
  int64_t used = 0;  // without the padding at its end
  // A parameter without elements has a slice of none on rank 0.
  std::vector<ZeroSlice> slices;
};

// ZeRO-1 and 2: the parameters one after the other, gaps[i] elements after
// parameter i (or `gaps` is empty), cut evenly. REQUIRES: sizes >= 0, ranks >
// 0. Errors: DataLoss for a gap below zero or more than 64 bits hold.
absl::StatusOr<ZeroArray> SliceJoined(std::span<const int64_t> sizes,
                                      std::span<const int64_t> gaps,
                                      int64_t ranks, int64_t rank);

// ZeRO-3: each parameter cut evenly. The same.
absl::StatusOr<ZeroArray> SliceEach(std::span<const int64_t> sizes,
                                    int64_t ranks, int64_t rank);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_ZERO_SLICES_H_
