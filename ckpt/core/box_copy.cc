// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/box_copy.h"

#include <algorithm>
#include <cstring>

#include "ckpt/core/streaming_copy.h"

namespace shardshift::ckpt {
namespace {

// Row-major strides of a dense image, in elements.
Shape Strides(const Shape& extent) {
  Shape strides(extent.size(), 1);
  for (size_t d = extent.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * extent[d];
  }
  return strides;
}

int64_t Offset(const Box& box, const Shape& strides, const Box& what) {
  int64_t offset = 0;
  for (size_t d = 0; d < strides.size(); ++d) {
    offset += (what.start[d] - box.start[d]) * strides[d];
  }
  return offset;
}

// The number of leading dims that a run does not span: behind dim `outer`
// both images hold no more than `what` does.
size_t OuterDims(const Box& src_box, const Box& dst_box, const Box& what) {
  size_t outer = what.extent.size();
  while (outer > 0) {
    --outer;
    if (what.extent[outer] != src_box.extent[outer] ||
        what.extent[outer] != dst_box.extent[outer]) {
      break;
    }
  }
  return outer;
}

}  // namespace

void ForEachRunPair(const Box& src_box, const Box& dst_box, const Box& what,
                    absl::FunctionRef<void(int64_t, int64_t, int64_t)> fn) {
  if (NumElements(what) == 0) return;
  const Shape src_strides = Strides(src_box.extent);
  const Shape dst_strides = Strides(dst_box.extent);
  const size_t outer = OuterDims(src_box, dst_box, what);
  int64_t count = 1;
  for (size_t d = outer; d < what.extent.size(); ++d) count *= what.extent[d];

  int64_t src_offset = Offset(src_box, src_strides, what);
  int64_t dst_offset = Offset(dst_box, dst_strides, what);
  Shape index(outer, 0);
  while (true) {
    fn(src_offset, dst_offset, count);
    size_t d = outer;
    while (d > 0 && index[d - 1] == what.extent[d - 1] - 1) {
      --d;
      src_offset -= index[d] * src_strides[d];
      dst_offset -= index[d] * dst_strides[d];
      index[d] = 0;
    }
    if (d == 0) return;
    ++index[d - 1];
    src_offset += src_strides[d - 1];
    dst_offset += dst_strides[d - 1];
  }
}

std::optional<RunPair> OnlyRunPair(const Box& src_box, const Box& dst_box,
                                   const Box& what) {
  const size_t outer = OuterDims(src_box, dst_box, what);
  for (size_t d = 0; d < outer; ++d) {
    if (what.extent[d] != 1) return std::nullopt;
  }
  const int64_t count = NumElements(what);
  if (count == 0) return std::nullopt;
  return RunPair{Offset(src_box, Strides(src_box.extent), what),
                 Offset(dst_box, Strides(dst_box.extent), what), count};
}

void ForEachRun(const Box& box, const Box& what,
                absl::FunctionRef<void(int64_t, int64_t)> fn) {
  ForEachRunPair(box, box, what, [&](int64_t offset, int64_t, int64_t count) {
    fn(offset, count);
  });
}

void CopyBox(const std::byte* src, const Box& src_box, std::byte* dst,
             const Box& dst_box, const Box& what, int64_t item_size) {
  constexpr size_t kMinStreamedBytes = 4096;
  ForEachRunPair(src_box, dst_box, what,
                 [&](int64_t src_offset, int64_t dst_offset, int64_t count) {
                   const auto size = static_cast<size_t>(count * item_size);
                   const std::byte* from = src + src_offset * item_size;
                   std::byte* to = dst + dst_offset * item_size;
                   if (size >= kMinStreamedBytes) {
                     StreamingCopy({from, size}, {to, size});
                   } else {
                     std::memcpy(to, from, size);
                   }
                 });
}

}  // namespace shardshift::ckpt
