// Rewrites a checkpoint for another layout: files to files, in fixed memory,
// with proof.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_RESHARD_H_
#define SHARDSHIFT_RESHARD_EXEC_RESHARD_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/reader.h"
#include "reshard/exec/copy_files.h"
#include "reshard/exec/copy_plan.h"
#include "reshard/exec/processes.h"
#include "reshard/exec/proof.h"
#include "reshard/layout/layout.h"

namespace shardshift::reshard {

struct ReshardOptions {
  CopyChoice choice = {};
  // No model: every tensor is copied as it is, over the layout's data ranks.
  bool generic = false;
  // Of what is under way; tables, and blocks of a codec, come on top.
  int64_t memory_bytes = int64_t{64} << 20;
  ckpt::Codec codec = ckpt::Codec::kNone;  // of the copy
  // Called once all is written and proved, with what the copy holds; unless it
  // is OK nothing is published, and the copy fails with it.
  std::function<absl::Status(std::span<const ExpectedTensor> copied)>
      before_publish = nullptr;
  // Called now and then, on another thread, with payload bytes written so far,
  // and their total.
  absl::FunctionRef<void(int64_t done, int64_t total)> progress =
      [](int64_t, int64_t) {};
};

struct ReshardReport {
  int64_t step = 0;
  std::optional<Layout> from;  // if the source tells
  std::optional<Layout> to;    // if the copy has one
  int64_t tensors = 0;         // logical tensors, each role apart
  int64_t payload_bytes = 0;   // of all of them
  int64_t parts = 0;           // files
  bool converted = false;      // some of it to another dtype
  int64_t linked_parts =
      0;  // of the parts, files of the source under another name
  // Of what was chosen of the source, as the copy has to hold it, and of the
  // copy as it was written.
  ckpt::Digest128 root_before;
  ckpt::Digest128 root_after;
  // Set when a fingerprint of the copy differs; names the tensor. OK is the
  // proof that every value is equal, bit for bit; if converted, to what was
  // read and rounded.
  absl::Status proof;
  std::string replaced_leftover;  // an earlier DST.partial of ours, or empty
  std::vector<std::string> left_out;  // what of the source has no home there
  // Tensors of which the copy has the weight that the source keeps beside the
  // master: by name, in their order.
  std::vector<std::string> kept_weights;
};

// What ReshardCheckpoint would do.
struct DryRunReport {
  int64_t step = 0;
  std::optional<Layout> from;
  std::optional<Layout> to;
  int64_t parts = 0;          // to be written
  int64_t linked_parts = 0;   // files of the source that get a second name
  int64_t payload_bytes = 0;  // to be written
  CopyCosts costs = {};
  double read_bytes_per_s = 0;  // of the disk, now; 0 if it cannot be told
};

// Checks and plans everything, writes nothing; an index alone is enough.
// Errors: as ReshardCheckpoint, but for the destination's.
absl::StatusOr<DryRunReport> DryRun(const ckpt::Reader& source,
                                    const Layout& layout,
                                    const ReshardOptions& options);

// Writes `destination`, a run directory with the one step of `source`, laid
// out for `layout`. It grows in destination.partial and is renamed at the end;
// nothing is left behind on an error. Parts that the source has already are
// linked.
// Errors: AlreadyExists if there is anything at `destination`, or a
// destination.partial without our mark; InvalidArgument for a layout the model
// cannot have; FailedPrecondition or DataLoss for a source that is not whole;
// as PlanCopy.
absl::StatusOr<ReshardReport> ReshardCheckpoint(const ckpt::Reader& source,
                                                const std::string& destination,
                                                const Layout& layout,
                                                const ReshardOptions& options);

// The same by several processes that see the same files, each of which writes
// some of the parts. The report of the first one is whole; the others' lacks
// the proof.
absl::StatusOr<ReshardReport> ReshardCheckpoint(const ckpt::Reader& source,
                                                const std::string& destination,
                                                const Layout& layout,
                                                const ReshardOptions& options,
                                                Processes& processes);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_RESHARD_H_
