// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/box.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace shardshift::ckpt {

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
