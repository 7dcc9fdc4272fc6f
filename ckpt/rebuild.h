// Making a lost index anew from the parts, each of which repeats what the
// index says of it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_REBUILD_H_
#define SHARDSHIFT_CKPT_REBUILD_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "ckpt/hdf5/index_file.h"

namespace shardshift::ckpt {

struct RebuildOptions {
  bool replaces_whole_index = false;
  // The new index has views of the tensors if there are up to so many.
  int64_t max_viewed_fragments = kMaxViewedFragments;
};

struct RebuildReport {
  int64_t step = 0;
  int64_t num_tensors = 0;
  int64_t num_fragments = 0;
  int64_t num_parts = 0;
  // Whether the old index still told the record, which no part repeats. Else
  // the new one's is "{}"; all other bytes are those of the lost index.
  bool knows_record = false;
};

// Makes STEP/index.h5 of all parts in the directory. The old one is replaced
// when the new one is durable. Payload is not looked at.
// Errors: NotFound without parts; FailedPrecondition if the index is whole and
// not to be replaced, or if the checkpoint is being read; DataLoss, naming
// file or tensor, if a part is damaged, or of another step or state, or if the
// parts do not make whole tensors. Nothing is changed then.
absl::StatusOr<RebuildReport> RebuildIndex(const std::string& step_dir,
                                           const RebuildOptions& options = {});

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_REBUILD_H_
