// Opens a checkpoint of any format.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_OPEN_SOURCE_H_
#define SHARDSHIFT_RESHARD_FORMATS_OPEN_SOURCE_H_

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/reader.h"
#include "reshard/exec/proof.h"
#include "reshard/exec/reshard.h"
#include "reshard/formats/foreign_checkpoint.h"
#include "reshard/formats/format.h"

namespace shardshift::reshard {

struct OpenOptions {
  std::optional<Format> from = std::nullopt;  // else as DetectFormat says
  ForeignOptions foreign = {};
  ckpt::PartFiles parts = ckpt::PartFiles::kNeeded;
  // Of a foreign checkpoint everything is read, to VerifySource, or for the
  // fingerprints of all tensors.
  bool verify = false;
  bool fingerprints = false;
  // Tensors of a foreign checkpoint whose weights are known not to be their
  // masters, rounded: they are there beside them. All others are known to be.
  std::vector<std::string> keep_weights = {};
};

// What a foreign checkpoint says of its values, to be checked.
struct SourceChecks {
  std::vector<StorageCheck> storages;
  std::vector<ReplicaCheck> replicas;
  // Where the source has masters, and nobody has compared them yet.
  std::unique_ptr<ckpt::Reader> weights;
};

struct OpenedSource {
  Format format = Format::kNative;
  std::shared_ptr<const ckpt::Reader> reader;
  std::shared_ptr<SourceChecks> checks;  // null if there is nothing to check
  std::vector<std::string> notes;        // for the user, a line each
  std::vector<std::string> left_out;     // what of the source has no home here
  std::vector<LostFromTensor> lost;      // what of its state was filled in
};

// With `verify` or `fingerprints` weights that are not their masters, rounded,
// are kept beside them, and noted.
// Errors: as DetectFormat, NothingKnown, ResolveCheckpoint and the reader of
// the format; Unimplemented for one that cannot be read.
absl::StatusOr<OpenedSource> OpenSource(const std::string& path,
                                        const OpenOptions& options);

// Checks the values that a foreign checkpoint is of: checksums of archives,
// replicas against each other. What was read since it was opened is not read
// again. Gives the tensors whose weights are not their masters, rounded, and so
// have to be kept; `copied` is what a copy of it holds, where weights that were
// rounded from the masters may be.
// Errors: DataLoss naming what differs; also for weights that are not their
// masters after a repair.
absl::StatusOr<std::vector<std::string>> VerifySource(
    const OpenedSource& source, std::span<const ExpectedTensor> copied = {});

// What makes a copy of a source, and calls that before it is published.
using MakeCopy = absl::FunctionRef<absl::StatusOr<ReshardReport>(
    const OpenedSource&,
    const std::function<absl::Status(std::span<const ExpectedTensor>)>&)>;

// Makes a copy, and verifies `source`, which is opened of `path` with
// `options`. If weights have to be kept, it is opened again with them, and the
// copy is made again: nearly all sources have none, and are read once.
absl::StatusOr<ReshardReport> CopyVerified(const std::string& path,
                                           const OpenOptions& options,
                                           OpenedSource& source, MakeCopy make);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_OPEN_SOURCE_H_
