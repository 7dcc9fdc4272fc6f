// Opens a checkpoint of any format.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_OPEN_SOURCE_H_
#define SHARDSHIFT_RESHARD_FORMATS_OPEN_SOURCE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ckpt/reader.h"
#include "reshard/formats/foreign_checkpoint.h"
#include "reshard/formats/format.h"

namespace shardshift::reshard {

struct OpenOptions {
  std::optional<Format> from = std::nullopt;  // else as DetectFormat says
  ForeignOptions foreign = {};
  ckpt::PartFiles parts = ckpt::PartFiles::kNeeded;
  // Of a foreign checkpoint everything is read, to check what checksums there
  // are, or for the fingerprints of all tensors.
  bool verify = false;
  bool fingerprints = false;
};

struct OpenedSource {
  Format format = Format::kNative;
  std::shared_ptr<const ckpt::Reader> reader;
  std::vector<std::string> notes;     // for the user, a line each
  std::vector<std::string> left_out;  // what of the source has no home here
  std::vector<LostFromTensor> lost;   // what of its state was filled in
};

// Errors: as ResolveCheckpoint and the reader of the format;
// FailedPrecondition for what looks like no format; Unimplemented for one that
// cannot be read.
absl::StatusOr<OpenedSource> OpenSource(const std::string& path,
                                        const OpenOptions& options);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_OPEN_SOURCE_H_
