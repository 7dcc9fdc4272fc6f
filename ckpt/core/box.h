// Half-open boxes in a tensor's global index space.
// Units: elements, never bytes. Dim 0 is slowest.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_CORE_BOX_H_
#define SHARDSHIFT_CKPT_CORE_BOX_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"

namespace shardshift::ckpt {

// Extents of a tensor. A 0-d shape is {} and has one element. The usual few
// dims need no allocation: an index may list a million of them.
using Shape = absl::InlinedVector<int64_t, 4>;

// The indices start[d] <= i[d] < start[d] + extent[d]. Both vectors have one
// entry for each dim.
struct Box {
  Shape start;
  Shape extent;

  int64_t ndim() const { return static_cast<int64_t>(start.size()); }
  friend std::strong_ordering operator<=>(const Box&, const Box&) = default;
  friend bool operator==(const Box&, const Box&) = default;
};

// The box of all indices of `shape`.
Box WholeBox(const Shape& shape);

// Product of the extents; 1 for 0-d. REQUIRES: it fits int64_t.
int64_t NumElements(const Shape& extent);
inline int64_t NumElements(const Box& box) { return NumElements(box.extent); }

// The same for extents that nobody has checked.
// Errors: OutOfRange for a negative extent, or if the product of the
// non-zero extents does not fit int64_t.
absl::StatusOr<int64_t> CheckedNumElements(const Shape& extent);

// The common indices, or nullopt if there are none. REQUIRES: equal ndim.
std::optional<Box> Intersect(const Box& a, const Box& b);

// Whether every index of `inner` is in `outer`, and `inner` starts and ends
// within it even when empty. False if ndim differs.
bool Contains(const Box& outer, const Box& inner);

// `box` in pieces of at most max_elements, each one run of its row-major
// order, ascending; none if it is empty. REQUIRES: max_elements > 0.
std::vector<Box> SplitRowMajor(const Box& box, int64_t max_elements);

// The positions, in the row-major order of `box`, of the first and the last
// element of `what`. REQUIRES: `what` has an element and lies in `box`.
struct RowMajorPositions {
  int64_t first = 0;
  int64_t last = 0;
};
RowMajorPositions RowMajorBounds(const Box& box, const Box& what);

// The elements [begin, end) of `box` in row-major order, as boxes in that
// order: at most 2 * ndim - 1 of them, each contiguous in `box`; none if the
// range is empty. REQUIRES: 0 <= begin, end <= NumElements(box).
std::vector<Box> RowMajorRange(const Box& box, int64_t begin, int64_t end);

// How many elements of `box` come before index `index` of the row-major order
// of `shape`, in which the box lies. As `index` grows, every box of a tensor is
// passed in its own order. REQUIRES: 0 <= index <= NumElements(shape).
int64_t ElementsBefore(const Shape& shape, const Box& box, int64_t index);

// The index in the row-major order of `shape` of element `position` of `box`.
// REQUIRES: 0 <= position < NumElements(box).
int64_t RowMajorIndex(const Shape& shape, const Box& box, int64_t position);

// "[0:4,8:16]"; "[]" for 0-d.
std::string ToString(const Box& box);

// "[4,16]"; "[]" for 0-d.
std::string ToString(const Shape& shape);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_CORE_BOX_H_
