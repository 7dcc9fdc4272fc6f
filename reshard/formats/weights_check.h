// Whether the weights of a checkpoint are its masters, rounded, so that a copy
// of the masters has them, too; those that are not are kept beside them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_WEIGHTS_CHECK_H_
#define SHARDSHIFT_RESHARD_FORMATS_WEIGHTS_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/reader.h"
#include "reshard/formats/foreign_checkpoint.h"

namespace shardshift::reshard {

// Of the names, in their order, those whose weights are not, bit for bit, the
// masters of `state` in the dtype of the weights. Compares every element.
// Errors: DataLoss for a weight of another shape than its master.
absl::StatusOr<std::vector<std::string>> UnlikeMasters(
    const ckpt::Reader& state, const ckpt::Reader& weights,
    const std::vector<std::string>& names);

// The same by some elements from the front of each tensor.
absl::StatusOr<std::vector<std::string>> UnlikeInFront(
    const ckpt::Reader& state, const ckpt::Reader& weights,
    const std::vector<std::string>& names);

// Adds weights of `read` beside its masters; the other ones are the masters,
// rounded, and checked no more. REQUIRES: read.weights has all of the names.
absl::Status KeepWeights(const std::vector<std::string>& names,
                         ForeignCheckpoint& read);

// "the weights of 5 tensors, which are not their masters, rounded: a, b, c and
// 2 more".
std::string DescribeKept(const std::vector<std::string>& names);

// What to say where the state cannot be right.
std::string UnlikeMaster(const ckpt::Reader& state, absl::string_view name);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_WEIGHTS_CHECK_H_
