// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/dense_parts.h"

#include <utility>

namespace shardshift::reshard {

std::vector<DensePart> DenseParts(const ckpt::Box& image,
                                  const ckpt::Box& what) {
  // What follows dim `whole` is taken whole, so rows of it join.
  int64_t whole = what.ndim();
  while (whole > 0 && what.extent[whole - 1] == image.extent[whole - 1]) {
    --whole;
  }
  // Dims before the last one that is cut go one index at a time.
  const int64_t outer = whole > 0 ? whole - 1 : 0;
  ckpt::Box box = what;
  int64_t count = 1;
  for (int64_t d = 0; d < outer; ++d) {
    count *= what.extent[d];
    box.extent[d] = 1;
  }
  std::vector<DensePart> parts;
  parts.reserve(count);
  for (int64_t i = 0; i < count; ++i) {
    parts.push_back({box, ckpt::RowMajorBounds(image, box).first});
    for (int64_t d = outer - 1; d >= 0; --d) {
      if (++box.start[d] < what.start[d] + what.extent[d]) break;
      box.start[d] = what.start[d];
    }
  }
  return parts;
}

}  // namespace shardshift::reshard
