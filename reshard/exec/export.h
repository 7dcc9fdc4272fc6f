// Writes a checkpoint into files of another format: files to files, in fixed
// memory, with proof. The format says beforehand where everything lies.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_EXPORT_H_
#define SHARDSHIFT_RESHARD_EXEC_EXPORT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ckpt/foreign_writer.h"
#include "ckpt/reader.h"
#include "reshard/exec/reshard.h"
#include "reshard/layout/layout.h"

namespace shardshift::reshard {

struct TextFile {
  std::string name;  // within the destination; may have directories
  std::string text;
};

// A tensor of the source under the name and role of the export. It may be
// there several times, as a format keeps masters beside rounded weights, or a
// replica for each rank: each under a role of its own.
struct ExportedTensor {
  int64_t source = 0;  // index into the tensors of the source's table
  std::string name;    // as in FragmentSpec
  std::string role;
};

struct ExportPlan {
  std::vector<ckpt::ForeignFile> files;
  std::vector<TextFile> texts;
  std::vector<ExportedTensor> tensors;  // all that the files' specs name
  std::vector<std::string> left_out;    // what of the source has no home there
  std::optional<Layout> layout = std::nullopt;  // of a format that has one
};

// Writes the directory `destination`, as ReshardCheckpoint does. Of the options
// memory and progress count.
// Errors: as ReshardCheckpoint; FailedPrecondition for a tensor that the plan
// does not place as a whole.
absl::StatusOr<ReshardReport> ExportCheckpoint(const ckpt::Reader& source,
                                               const std::string& destination,
                                               const ExportPlan& plan,
                                               const ReshardOptions& options);

// What that would do. An index alone is enough. Errors: as above, but for the
// destination's.
absl::StatusOr<DryRunReport> DryRunExport(const ckpt::Reader& source,
                                          const ExportPlan& plan,
                                          const ReshardOptions& options);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_EXPORT_H_
