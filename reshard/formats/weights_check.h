// Whether the weights of a checkpoint are its masters, rounded: what a copy
// that keeps the masters alone takes for granted.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_WEIGHTS_CHECK_H_
#define SHARDSHIFT_RESHARD_FORMATS_WEIGHTS_CHECK_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/reader.h"

namespace shardshift::reshard {

// Compares masters (of `state`) with weights of the same names: some elements
// from the front of each tensor, or with `all` every one. Gives the first of
// the names whose tensors differ.
absl::StatusOr<std::optional<std::string>> FirstUnlikeMaster(
    const ckpt::Reader& state, const ckpt::Reader& weights,
    const std::vector<std::string>& names, bool all);

// What to say of it.
std::string UnlikeMaster(const ckpt::Reader& state, absl::string_view name);

// All elements of these.
// Errors: DataLoss naming the first tensor that differs, and what to do.
absl::Status CheckMasters(const ckpt::Reader& state,
                          const ckpt::Reader& weights,
                          const std::vector<std::string>& names);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_WEIGHTS_CHECK_H_
