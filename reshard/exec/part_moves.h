// How many bytes a plan moves between which part files.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_PART_MOVES_H_
#define SHARDSHIFT_RESHARD_EXEC_PART_MOVES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/reader.h"
#include "reshard/exec/copy_plan.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

// A box on its way. Parts are numbers of files.
struct PartMove {
  int64_t source_part = 0;
  int64_t target_part = 0;
  int64_t bytes = 0;
};

// Calls visit(move) for every box that `plan` copies, tensor by tensor.
// Errors: as PlanCopies, naming the tensor.
absl::Status VisitMoves(const ckpt::Reader& source, const CopyPlan& plan,
                        absl::FunctionRef<void(const PartMove&)> visit);

// What is read of a checkpoint.
struct ReadTotals {
  int64_t fragments = 0;
  std::vector<int64_t> parts;  // numbers of the files, ascending
  int64_t bytes = 0;

  bool operator==(const ReadTotals&) const = default;
};

// What a load of `pieces` reads, under every role of the source's content.
// REQUIRES: CheckStored(source, tensors, ContentOf(source)) is OK.
// Errors: as PlanLoad.
absl::StatusOr<ReadTotals> TotalsOfLoad(
    const ckpt::Reader& source, const std::vector<LogicalTensor>& tensors,
    std::span<const Piece> pieces);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_PART_MOVES_H_
