// Slices of tensors as numpy writes them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_SLICE_H_
#define SHARDSHIFT_TOOLS_SLICE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/box.h"

namespace shardshift {

// The indices begin, begin + step, ... of one dim, `count` of them. `step` is
// 1 where it does not matter.
struct Stride {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t step = 1;

  friend bool operator==(const Stride&, const Stride&) = default;
};

struct Slice {
  std::vector<Stride> dims;  // of the tensor
  ckpt::Shape shape;         // counts, without the dims given by one index
};

// "w[0:4,8]" as {"w", "[0:4,8]"}; a text without a slice as {"w", ""}.
std::pair<std::string, std::string> SplitSlice(const std::string& text);

// Reads "[2:6,:,-1,::2]" as numpy does: indices and begin:end:step, from dim 0
// on; negative numbers count from the end, what a range names beyond the
// tensor is left out. Dims not given are whole, as all are for "".
// Errors: InvalidArgument for what does not read; OutOfRange for an index
// beyond `shape`.
absl::StatusOr<Slice> ParseSlice(absl::string_view text,
                                 const ckpt::Shape& shape);

// The elements of a slice, in row-major order, in pieces: boxes in the space
// of the counts of its dims. The box that a piece spans in the tensor has at
// most max_elements. REQUIRES: max_elements > 0.
std::vector<ckpt::Box> SplitSlicePieces(const Slice& slice,
                                        int64_t max_elements);

// The smallest box of the tensor that has all of a piece.
// REQUIRES: the piece has an element.
ckpt::Box SpanOf(const Slice& slice, const ckpt::Box& piece);

// Copies the elements of `piece`, dense, from the dense image of its span.
void CopyPiece(const Slice& slice, const ckpt::Box& piece, int64_t item_size,
               const std::byte* span, std::byte* dst);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_SLICE_H_
