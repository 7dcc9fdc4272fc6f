// The runs that a box has in the image of a larger one.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_DENSE_PARTS_H_
#define SHARDSHIFT_RESHARD_FORMATS_DENSE_PARTS_H_

#include <cstdint>
#include <vector>

#include "ckpt/core/box.h"

namespace shardshift::reshard {

struct DensePart {
  ckpt::Box box;
  int64_t offset = 0;  // elements from the start of the image
};

// Cuts `what` into boxes whose elements follow one another in the row-major
// image of `image`, ascending, as large as whole rows allow.
// REQUIRES: `what` has an element and lies in `image`.
std::vector<DensePart> DenseParts(const ckpt::Box& image,
                                  const ckpt::Box& what);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DENSE_PARTS_H_
