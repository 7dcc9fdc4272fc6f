// Running plans between checkpoints and memory. The trainer's load and save
// and the `reshard` tool are these functions.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_EXECUTORS_H_
#define SHARDSHIFT_RESHARD_EXEC_EXECUTORS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/reader.h"
#include "ckpt/writer.h"
#include "reshard/layout/content.h"
#include "reshard/layout/parameters.h"
#include "reshard/layout/rank_state.h"
#include "reshard/layout/write_assignment.h"

namespace shardshift::reshard {

// A buffer for the dense row-major image of `box`.
struct BoxBuffer {
  ckpt::Box box;
  std::byte* data = nullptr;
};

// Files to memory: adds the reads that fill the buffers with boxes of table
// tensor `tensor`. Errors: DataLoss for a box that the checkpoint does not
// cover.
absl::Status AppendReads(const ckpt::Reader& reader, int64_t tensor,
                         std::span<const BoxBuffer> buffers,
                         std::vector<ckpt::FragmentRead>& reads);

// Files to memory: the reads that fill every piece a rank owns, as F32, under
// each of `roles`. `memory(piece, i)` is where the piece of roles[i] lies.
// REQUIRES: CheckStored() of these roles is OK.
absl::StatusOr<std::vector<ckpt::FragmentRead>> PlanLoad(
    const ckpt::Reader& reader, const std::vector<LogicalTensor>& tensors,
    std::span<const Piece> pieces,
    absl::FunctionRef<float*(const Piece&, int64_t role)> memory,
    std::span<const char* const> roles = kOptimizerRoles);

// The dense images in memory of items, each the whole of one of `pieces`.
std::vector<std::span<const std::byte>> ImagesOf(
    std::span<const WriteItem> items, std::span<const Piece> pieces,
    absl::FunctionRef<const float*(const Piece&, int64_t role)> memory);

// As F32.
std::vector<ckpt::FragmentSpec> FragmentSpecs(
    const std::vector<LogicalTensor>& tensors, std::span<const WriteItem> items,
    Content content = Content::kTraining);

// Memory to files: writes part `part` of a checkpoint with the given items,
// whose images are images[i]. nullopt if there are no items: empty parts are
// not written.
absl::StatusOr<std::optional<ckpt::PartReceipt>> WritePartFromMemory(
    const std::string& directory, int64_t part, const ckpt::CheckpointId& id,
    const std::vector<LogicalTensor>& tensors, std::span<const WriteItem> items,
    std::span<const std::span<const std::byte>> images);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_EXECUTORS_H_
