// Where a fault of Megatron-Core 0.15 to 0.19 leaves optimizer state: of an
// optimizer saved as fully_reshardable, the flat buffer loses the padding at
// the ends of its buckets, and is then cut into parameters at the places they
// had with it. So in later buckets a parameter's name gets what lies further
// on. The weights are right. Units: elements.
// Source: distributed-optimizer.md 2.3.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_SHIFTED_BUFFER_H_
#define SHARDSHIFT_RESHARD_FORMATS_SHIFTED_BUFFER_H_

#include <cstdint>
#include <vector>

#include "reshard/layout/flat_buffer.h"

namespace shardshift::reshard {

// By how much the state of a parameter of the buffer is shifted.
int64_t ShiftOf(const FlatBuffer& flat, int64_t parameter);

// A run of a parameter's elements.
struct ShiftedRun {
  Range elements;
  // Under the name of which parameter of the buffer it lies; -1: under none.
  int64_t holder = -1;
  int64_t begin = 0;  // the first element's place there

  bool operator==(const ShiftedRun&) const = default;
};

// All elements of a parameter, in order. `is_stored`, by parameter: whether
// what the checkpoint has under its name is of this buffer.
std::vector<ShiftedRun> FindShifted(const FlatBuffer& flat,
                                    const std::vector<bool>& is_stored,
                                    int64_t parameter);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_SHIFTED_BUFFER_H_
