// Whether boxes tile a region.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_FORMAT_COVER_H_
#define SHARDSHIFT_CKPT_FORMAT_COVER_H_

#include <vector>

#include "absl/status/status.h"
#include "ckpt/core/box.h"

namespace shardshift::ckpt {

// Checks that `boxes` cover `region` exactly once, in O(n log^2 n) for
// partitions that straight cuts take apart, as those of parallel layouts.
// REQUIRES: `region` and each box have an element, boxes lie in `region`.
// Errors: InvalidArgument, naming a box that is covered twice or not at all.
absl::Status CheckExactCover(const Box& region, const std::vector<Box>& boxes);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_FORMAT_COVER_H_
