// Writing a checkpoint: parts into RUN/step-N.partial, each by its own writer
// (another thread or process may do each), then one commit.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_WRITER_H_
#define SHARDSHIFT_CKPT_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/box.h"
#include "ckpt/core/checksum.h"
#include "ckpt/core/dtype.h"
#include "ckpt/format/table.h"
#include "ckpt/format/user_block.h"
#include "ckpt/io/file.h"

namespace shardshift::ckpt {

// A box of a logical tensor that a part is to hold. It has an element, unless
// the tensor is empty: then one part holds its whole box.
struct FragmentSpec {
  std::string tensor;
  std::string role;
  DType dtype = DType::kF32;
  Shape shape;  // of the whole tensor
  Box box;
};

// What each part repeats of its checkpoint, so that the index can be made anew
// from the parts.
struct CheckpointId {
  int64_t step = 0;
  std::string state;  // JSON text

  friend bool operator==(const CheckpointId&, const CheckpointId&) = default;
};

// What a finished part tells the one who commits. Plain data.
struct PartReceipt {
  Part part;
  Table table;  // the part's own
};

// Writes one part file. Distinct writers are independent.
class PartWriter {
 public:
  // Creates DIR/part-NNNNN.h5 with room for the fragments, in the given
  // order. The bytes of the file depend on the arguments and payload only.
  // Errors: InvalidArgument for specs that contradict each other or name a
  // box twice, or for no specs at all (an empty part is not written).
  static absl::StatusOr<std::unique_ptr<PartWriter>> Create(
      const std::string& directory, int64_t part, const CheckpointId& id,
      const std::vector<FragmentSpec>& specs);

  // Leaves an unfinished file behind, which no reader accepts.
  ~PartWriter() = default;

  // Writes block `block` of specs[fragment]: `bytes` of the dense row-major
  // image of its box from byte block * kBlockBytes on. Blocks come in any
  // order, each once, and from several threads at once. `bytes` that begin at
  // a multiple of kDirectBlockBytes in memory are written without a copy.
  // Errors: InvalidArgument for another number of bytes; as File::WriteAt.
  absl::Status WriteBlock(int64_t fragment, int64_t block,
                          std::span<const std::byte> bytes);

  // Writes all blocks of all fragments, of which images[i] is the one of
  // specs[i], on the default pool.
  absl::Status WriteFragments(
      std::span<const std::span<const std::byte>> images);

  // Writes table and user block and syncs the file.
  // Errors: FailedPrecondition if not every block came exactly once.
  absl::StatusOr<PartReceipt> Close();

 private:
  PartWriter(int64_t part, File file, FileImage image, Table table,
             std::vector<int64_t> table_index, UserBlock user_block);

  int64_t part_;
  File file_;
  FileImage image_;  // all but the payload
  Table table_;
  std::vector<int64_t> table_index_;  // spec -> table_.fragments
  UserBlock user_block_;
  std::vector<Digest128> keys_;  // of fingerprints, by spec

  std::mutex mutex_;  // guards the fingerprints in table_ and:
  std::vector<std::vector<bool>> is_written_;  // by spec and block
  int64_t blocks_left_ = 0;
};

// Creates RUN/step-N.partial, empty, and RUN itself if need be; gives its
// path. A leftover is removed first if it holds nothing but files a save
// writes. Errors: AlreadyExists for any other thing of that name.
absl::StatusOr<std::string> BeginCheckpoint(const std::string& run_dir,
                                            int64_t step);

// Makes the parts in RUN/step-N.partial the checkpoint RUN/step-N, durable,
// and points RUN/latest to it. At every instant of a replacement the old or
// the new step N is there, whole.
// `record` is a JSON text, stored as it is.
// Errors: AlreadyExists if step N is there and not to be replaced;
// InvalidArgument if the receipts do not make whole tensors, or if one is of
// another checkpoint. Nothing is published then.
absl::Status CommitCheckpoint(const std::string& run_dir,
                              const CheckpointId& id,
                              const std::vector<PartReceipt>& receipts,
                              absl::string_view record, bool replace_existing);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_WRITER_H_
