// Rewrites a checkpoint for another layout: files to files, in fixed memory,
// with proof.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_RESHARD_H_
#define SHARDSHIFT_RESHARD_EXEC_RESHARD_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/reader.h"
#include "reshard/layout/layout.h"

namespace shardshift::reshard {

struct ReshardOptions {
  // Staging memory; a checksum block (4 MiB) and the tables come on top.
  int64_t buffer_bytes = int64_t{16} << 20;
  // Called now and then with payload bytes written and read back so far, and
  // their total at the end.
  absl::FunctionRef<void(int64_t done, int64_t total)> progress =
      [](int64_t, int64_t) {};
};

struct ReshardReport {
  int64_t step = 0;
  Layout from;
  Layout to;
  int64_t tensors = 0;        // logical tensors, each role apart
  int64_t payload_bytes = 0;  // of all of them
  int64_t parts = 0;          // files written
  // Set when the source differs from its copy; names tensor and index. OK is
  // the proof that every value is equal, bit for bit, as read back.
  absl::Status proof;
  std::string replaced_leftover;  // an earlier DST.partial of ours, or empty
};

// Writes `destination`, a run directory with the one step of `source`, laid
// out for `layout`. It grows in destination.partial and is renamed at the end;
// nothing is left behind on an error.
// Errors: AlreadyExists if there is anything at `destination`, or a
// destination.partial without our mark; InvalidArgument for a layout the model
// cannot have; FailedPrecondition or DataLoss for a source that is not whole.
absl::StatusOr<ReshardReport> ReshardCheckpoint(const ckpt::Reader& source,
                                                const std::string& destination,
                                                const Layout& layout,
                                                const ReshardOptions& options);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_RESHARD_H_
