// Opens a checkpoint of any format.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_OPEN_SOURCE_H_
#define SHARDSHIFT_RESHARD_FORMATS_OPEN_SOURCE_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/reader.h"
#include "reshard/exec/proof.h"
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
};

// What a foreign checkpoint says of its values, to be checked.
struct SourceChecks {
  std::vector<StorageCheck> storages;
  std::vector<ReplicaCheck> replicas;
  std::unique_ptr<ckpt::Reader> weights;  // where the source has masters
};

struct OpenedSource {
  Format format = Format::kNative;
  std::shared_ptr<const ckpt::Reader> reader;
  std::shared_ptr<SourceChecks> checks;  // null if there is nothing to check
  std::vector<std::string> notes;        // for the user, a line each
  std::vector<std::string> left_out;     // what of the source has no home here
  std::vector<LostFromTensor> lost;      // what of its state was filled in
};

// Errors: as DetectFormat, NothingKnown, ResolveCheckpoint and the reader of
// the format; Unimplemented for one that cannot be read.
absl::StatusOr<OpenedSource> OpenSource(const std::string& path,
                                        const OpenOptions& options);

// Checks the values that a foreign checkpoint is of: checksums of archives,
// weights against masters, replicas against each other. What was read since it
// was opened is not read again. `copied`: what a copy of it holds, where
// weights that were rounded from the masters may be.
// Errors: DataLoss naming what differs.
absl::Status VerifySource(const OpenedSource& source,
                          std::span<const ExpectedTensor> copied = {});

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_OPEN_SOURCE_H_
