// Moving a box between dense row-major images of larger boxes.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_CORE_BOX_COPY_H_
#define SHARDSHIFT_CKPT_CORE_BOX_COPY_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "ckpt/core/box.h"

namespace shardshift::ckpt {

// Calls fn(src_offset, dst_offset, count), in elements, for each run of
// `what` that is contiguous in the images of both boxes. Source offsets
// ascend; runs are as long as they can be, and none is empty.
// REQUIRES: equal ndim, `what` inside both boxes.
void ForEachRunPair(const Box& src_box, const Box& dst_box, const Box& what,
                    absl::FunctionRef<void(int64_t src_offset,
                                           int64_t dst_offset, int64_t count)>
                        fn);

// The only run of `what`, or nullopt if it has several or none.
struct RunPair {
  int64_t src_offset = 0;
  int64_t dst_offset = 0;
  int64_t count = 0;
};
std::optional<RunPair> OnlyRunPair(const Box& src_box, const Box& dst_box,
                                   const Box& what);

// ForEachRunPair for one image: the maximal runs of `what` within dense `box`.
void ForEachRun(const Box& box, const Box& what,
                absl::FunctionRef<void(int64_t offset, int64_t count)> fn);

// Copies the elements of `what` from `src`, the dense image of src_box, to
// `dst`, the dense image of dst_box. Other elements of `dst` are untouched.
// Runs of 4 KiB and more go past the cache (StreamingCopy).
// REQUIRES: as ForEachRunPair; src and dst do not overlap.
void CopyBox(const std::byte* src, const Box& src_box, std::byte* dst,
             const Box& dst_box, const Box& what, int64_t item_size);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_CORE_BOX_COPY_H_
