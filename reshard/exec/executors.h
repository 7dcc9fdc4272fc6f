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
#include "reshard/layout/parameters.h"
#include "reshard/layout/rank_state.h"
#include "reshard/layout/write_assignment.h"

namespace shardshift::reshard {

// A buffer for the dense row-major image of `box`.
struct BoxBuffer {
  ckpt::Box box;
  std::byte* data = nullptr;
};

// Files to memory: fills the buffers with boxes of table tensor `tensor`.
// Errors: DataLoss for damage, or a box that the checkpoint does not cover.
absl::Status ReadBoxes(const ckpt::Reader& reader, int64_t tensor,
                       std::span<const BoxBuffer> buffers,
                       ckpt::ReadScratch& scratch);

// Files to memory: fills every piece a rank owns, under every role.
// `memory(piece, role)` is where the piece lies.
// REQUIRES: CheckTensors(reader, tensors) is OK.
absl::Status LoadPieces(
    const ckpt::Reader& reader, const std::vector<LogicalTensor>& tensors,
    std::span<const Piece> pieces,
    absl::FunctionRef<float*(const Piece&, int64_t role)> memory);

// Memory to files: writes part `part` of a checkpoint with the given items,
// each the whole of one of `pieces`. nullopt if there are no items: empty
// parts are not written.
absl::StatusOr<std::optional<ckpt::PartReceipt>> WritePartFromMemory(
    const std::string& directory, int64_t part,
    const std::vector<LogicalTensor>& tensors, std::span<const WriteItem> items,
    std::span<const Piece> pieces,
    absl::FunctionRef<const float*(const Piece&, int64_t role)> memory);

// Gives the values of `box` of an item: fills the dense image of `box`, a box
// inside item.box.
using ItemSource = absl::FunctionRef<absl::Status(
    const WriteItem& item, const ckpt::Box& box, float* image)>;

// Any source to files: writes part k with the items parts[k], in slabs of at
// most `buffer_bytes` (at least one element), one after another.
absl::StatusOr<std::vector<ckpt::PartReceipt>> WriteParts(
    const std::string& directory, const std::vector<LogicalTensor>& tensors,
    std::span<const std::vector<WriteItem>> parts, int64_t buffer_bytes,
    ItemSource source);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_EXECUTORS_H_
