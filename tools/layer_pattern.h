// Megatron's --moe-layer-freq: which layers have experts.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_LAYER_PATTERN_H_
#define SHARDSHIFT_TOOLS_LAYER_PATTERN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shardshift {

// The layers that have none, ascending, of `num_layers`. `text` is a whole
// number N, for experts in layers 0, N, 2 N and so on; or a list of 0 and 1, a
// number a layer, in brackets, joined by + and repeated by *: ([0]*1+[1]*3)*2.
// Errors: InvalidArgument for anything else, naming the flag.
absl::StatusOr<std::vector<int64_t>> ParseDenseLayers(absl::string_view text,
                                                      int64_t num_layers);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_LAYER_PATTERN_H_
