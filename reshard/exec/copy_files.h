// Files to files: tensors of one checkpoint, into the parts of another, in
// memory that does not depend on their sizes.
//
// Every fragment is read, and every fragment is written, once and from front
// to back, because both follow one order: that of the elements of the logical
// tensor. A band of it, some megabytes, is in memory at a time, while the band
// before is being written; checksums go on from band to band.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_COPY_FILES_H_
#define SHARDSHIFT_RESHARD_EXEC_COPY_FILES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "ckpt/block_sink.h"
#include "ckpt/core/box.h"
#include "ckpt/core/dtype.h"
#include "ckpt/core/fingerprint.h"
#include "ckpt/reader.h"

namespace shardshift::reshard {

// A part to be written, with fragments in this order. Not empty.
struct TargetPart {
  int64_t number = 0;
  std::vector<ckpt::FragmentSpec> specs;
};

struct TargetFragment {
  int64_t part = 0;  // index into the list of parts
  int64_t spec = 0;  // of that part
};

// What is made of one tensor of the source. Of one part, targets lie one after
// another in the tensor, and ascend by spec.
struct TensorCopy {
  int64_t source = 0;  // index into the tensors of the source's table
  int64_t copy = 0;    // which one, where a tensor becomes several
  std::vector<TargetFragment> targets = {};
};

struct CopyFilesOptions {
  // Of bands and buffers together; tables, and blocks of a codec, come on top.
  int64_t memory_bytes = int64_t{64} << 20;
  ckpt::Codec codec = ckpt::Codec::kNone;  // of the parts
  // Called now and then, on another thread, with the bytes written so far.
  absl::FunctionRef<void(int64_t done_bytes)> progress = [](int64_t) {};
};

// By `source` and `copy` of a TensorCopy.
using NamedFingerprints =
    std::map<std::pair<int64_t, int64_t>, ckpt::Fingerprint>;

struct CopiedFiles {
  std::vector<ckpt::PartReceipt> receipts;  // of the parts, in order
  // Of what was read, under the name, role and dtype of the copy; where none of
  // these changes the source's table tells it.
  NamedFingerprints fingerprints;
};

struct TensorCost {
  int64_t source = 0;   // index into the tensors of the source's table
  int64_t sources = 0;  // fragments
  int64_t targets = 0;
  int64_t copies = 0;  // boxes that go from one to another
  int64_t payload_bytes = 0;
  int64_t read_bytes = 0;
};

struct CopyCosts {
  int64_t read_bytes = 0;           // pages around what is wanted
  int64_t memory_bytes = 0;         // bands and buffers, at most
  std::vector<TensorCost> tensors;  // in the given order
};

// What CopyFiles would do, without reading or writing payload.
// Errors: as CopyFiles, but for the disk's.
absl::StatusOr<CopyCosts> CostOfCopies(const ckpt::Reader& source,
                                       const std::vector<TargetPart>& parts,
                                       const std::vector<TensorCopy>& tensors,
                                       const CopyFilesOptions& options);

// Makes the file for a part.
using OpenSink = std::function<absl::StatusOr<std::unique_ptr<ckpt::BlockSink>>(
    const TargetPart& part)>;

// Makes part files of ours in `directory`.
OpenSink PartsOfOurs(std::string directory, ckpt::CheckpointId id,
                     ckpt::Codec codec);

// Writes `parts`, whose specs are those that `tensors` name, each once. Tensors
// are taken in the given order. The bytes depend on source, parts and codec
// alone. Errors: DataLoss if a target has elements that no source or two
// sources hold, or for damage, naming the place; InvalidArgument for a
// conversion that there is not, or a copy without targets; as `open` and
// BlockSink.
absl::StatusOr<CopiedFiles> CopyFiles(const ckpt::Reader& source,
                                      const std::vector<TargetPart>& parts,
                                      const std::vector<TensorCopy>& tensors,
                                      const OpenSink& open,
                                      const CopyFilesOptions& options);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_COPY_FILES_H_
