// Slices of tensors as numpy writes them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_SLICE_H_
#define SHARDSHIFT_TOOLS_SLICE_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/box.h"

namespace shardshift {

struct Slice {
  ckpt::Box box;      // of the tensor
  ckpt::Shape shape;  // extents without the dims given by one index
};

// "w[0:4,8]" as {"w", "[0:4,8]"}; a text without a slice as {"w", ""}.
std::pair<std::string, std::string> SplitSlice(const std::string& text);

// Reads "[2:6,:,3]": ranges with either end open, or single indices, from dim
// 0 on; dims not given are whole, as all are for "".
// Errors: InvalidArgument for what does not read; OutOfRange beyond `shape`.
absl::StatusOr<Slice> ParseSlice(absl::string_view text,
                                 const ckpt::Shape& shape);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_SLICE_H_
