// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/box.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace shardshift::ckpt {
namespace {

// Appends the boxes of elements [begin, end) of `box`, of which `prefix` fixes
// the dims before `dim`.
void AppendRowMajorRange(const Box& box, size_t dim, const Box& prefix,
                         int64_t begin, int64_t end, std::vector<Box>& boxes) {
  if (begin == end) return;
  int64_t stride = 1;
  for (size_t d = dim + 1; d < box.extent.size(); ++d) stride *= box.extent[d];
  const auto rows = [&](int64_t first, int64_t last) {
    Box slab = prefix;
    slab.start[dim] = box.start[dim] + first;
    slab.extent[dim] = last - first;
    return slab;
  };
  const int64_t first_whole = (begin + stride - 1) / stride;
  const int64_t end_whole = end / stride;
  if (first_whole > end_whole) {  // inside one row
    AppendRowMajorRange(box, dim + 1, rows(end_whole, first_whole),
                        begin - end_whole * stride, end - end_whole * stride,
                        boxes);
    return;
  }
  if (begin < first_whole * stride) {
    const int64_t row = first_whole - 1;
    AppendRowMajorRange(box, dim + 1, rows(row, row + 1), begin - row * stride,
                        stride, boxes);
  }
  if (first_whole < end_whole) boxes.push_back(rows(first_whole, end_whole));
  if (end_whole * stride < end) {
    AppendRowMajorRange(box, dim + 1, rows(end_whole, end_whole + 1), 0,
                        end - end_whole * stride, boxes);
  }
}

}  // namespace

Box WholeBox(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }

int64_t NumElements(const Shape& extent) {
  int64_t product = 1;
  for (const int64_t n : extent) product *= n;
  return product;
}

absl::StatusOr<int64_t> CheckedNumElements(const Shape& extent) {
  // Zeros are left out of the overflow check, so that strides of an empty
  // tensor are safe as well.
  int64_t product = 1;
  bool empty = false;
  for (const int64_t n : extent) {
    if (n == 0) empty = true;
    if (n < 0 || (n > 0 && __builtin_mul_overflow(product, n, &product))) {
      return absl::OutOfRangeError(
          absl::StrCat("shape ", ToString(extent),
                       n < 0 ? " has a negative extent"
                             : " has more elements than 64 bits count"));
    }
  }
  return empty ? 0 : product;
}

std::optional<Box> Intersect(const Box& a, const Box& b) {
  Box common = a;
  for (size_t d = 0; d < a.start.size(); ++d) {
    const int64_t begin = std::max(a.start[d], b.start[d]);
    const int64_t end =
        std::min(a.start[d] + a.extent[d], b.start[d] + b.extent[d]);
    if (begin >= end) return std::nullopt;
    common.start[d] = begin;
    common.extent[d] = end - begin;
  }
  return common;
}

bool Contains(const Box& outer, const Box& inner) {
  if (outer.ndim() != inner.ndim()) return false;
  for (size_t d = 0; d < outer.start.size(); ++d) {
    // Compared by differences: sums of unchecked numbers might overflow.
    const int64_t margin = outer.extent[d] - inner.extent[d];
    const int64_t shift = inner.start[d] - outer.start[d];
    if (inner.extent[d] < 0 || shift < 0 || shift > margin) return false;
  }
  return true;
}

std::vector<Box> SplitRowMajor(const Box& box, int64_t max_elements) {
  const int64_t num_elements = NumElements(box);
  if (num_elements == 0) return {};
  if (num_elements <= max_elements) return {box};
  size_t dim = 0;
  int64_t inner = num_elements;  // elements at one index of `dim`
  while ((inner /= box.extent[dim]) == num_elements) ++dim;
  const int64_t step = std::max<int64_t>(1, max_elements / inner);
  std::vector<Box> pieces;
  for (int64_t i = 0; i < box.extent[dim]; i += step) {
    Box slab = box;
    slab.start[dim] += i;
    slab.extent[dim] = std::min(step, box.extent[dim] - i);
    const std::vector<Box> parts = SplitRowMajor(slab, max_elements);
    pieces.insert(pieces.end(), parts.begin(), parts.end());
  }
  return pieces;
}

RowMajorPositions RowMajorBounds(const Box& box, const Box& what) {
  RowMajorPositions at;
  for (size_t d = 0; d < box.extent.size(); ++d) {
    const int64_t index = what.start[d] - box.start[d];
    at.first = at.first * box.extent[d] + index;
    at.last = at.last * box.extent[d] + index + what.extent[d] - 1;
  }
  return at;
}

std::vector<Box> RowMajorRange(const Box& box, int64_t begin, int64_t end) {
  std::vector<Box> boxes;
  if (begin == end) return boxes;
  if (box.extent.empty()) {
    boxes.push_back(box);
  } else {
    AppendRowMajorRange(box, 0, box, begin, end, boxes);
  }
  return boxes;
}

int64_t ElementsBefore(const Shape& shape, const Box& box, int64_t index) {
  if (index >= NumElements(shape)) return NumElements(box);
  int64_t before = 0;
  int64_t stride = NumElements(shape);  // of a dim, in the tensor
  int64_t inner = NumElements(box);     // elements of the box at one index
  for (size_t d = 0; d < shape.size() && inner > 0; ++d) {
    stride /= shape[d];
    inner /= box.extent[d];
    const int64_t at = index / stride - box.start[d];
    index %= stride;
    before += std::clamp<int64_t>(at, 0, box.extent[d]) * inner;
    if (at < 0 || at >= box.extent[d]) break;
  }
  return before;
}

int64_t RowMajorIndex(const Shape& shape, const Box& box, int64_t position) {
  int64_t index = 0;
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    index += (box.start[d] + position % box.extent[d]) * stride;
    position /= box.extent[d];
    stride *= shape[d];
  }
  return index;
}

std::string ToString(const Box& box) {
  std::string text = "[";
  for (size_t d = 0; d < box.start.size(); ++d) {
    absl::StrAppend(&text, d == 0 ? "" : ",", box.start[d], ":",
                    box.start[d] + box.extent[d]);
  }
  return text + "]";
}

std::string ToString(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ","), "]");
}

}  // namespace shardshift::ckpt
