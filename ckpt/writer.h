// Writing a checkpoint: parts into RUN/step-N.partial, each by its own writer
// (another thread or process may do each), then one commit.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_WRITER_H_
#define SHARDSHIFT_CKPT_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
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

// What a finished part tells the one who commits. Plain data.
struct PartReceipt {
  Part part;
  Table table;  // the part's own
};

// Writes one part file. Not thread-safe; distinct writers are independent.
class PartWriter {
 public:
  // Creates DIR/part-NNNNN.h5 with room for the fragments, in the given
  // order. The bytes of the file depend on the arguments and payload only.
  // Errors: InvalidArgument for specs that contradict each other or name a
  // box twice, or for no specs at all (an empty part is not written).
  static absl::StatusOr<std::unique_ptr<PartWriter>> Create(
      const std::string& directory, int64_t part,
      const std::vector<FragmentSpec>& specs);

  // Leaves an unfinished file behind, which no reader accepts.
  ~PartWriter() = default;

  // The next bytes of specs[fragment]; fragments may alternate. The box is
  // dense and row-major. Errors: OutOfRange beyond the fragment's end.
  absl::Status Append(int64_t fragment, std::span<const std::byte> bytes);

  // Writes table and user block and syncs the file.
  // Errors: FailedPrecondition if a fragment is not complete.
  absl::StatusOr<PartReceipt> Close();

 private:
  PartWriter(File file, Table table, std::vector<int64_t> table_index,
             UserBlock user_block);

  File file_;
  Table table_;
  std::vector<int64_t> table_index_;  // spec -> table_.fragments
  UserBlock user_block_;
  std::vector<BlockChecksums> checksums_;  // for each spec
  bool closed_ = false;
};

// Creates RUN/step-N.partial, empty, and RUN itself if need be; gives its
// path. A leftover is removed first if it holds nothing but files a save
// writes. Errors: AlreadyExists for any other thing of that name.
absl::StatusOr<std::string> BeginCheckpoint(const std::string& run_dir,
                                            int64_t step);

// Makes the parts in RUN/step-N.partial the checkpoint RUN/step-N, durable,
// and points RUN/latest to it. At every instant of a replacement the old or
// the new step N is there, whole.
// `state` and `record` are JSON texts, stored as they are.
// Errors: AlreadyExists if step N is there and not to be replaced;
// InvalidArgument if the receipts do not make whole tensors. Nothing is
// published then.
absl::Status CommitCheckpoint(const std::string& run_dir, int64_t step,
                              const std::vector<PartReceipt>& receipts,
                              absl::string_view state, absl::string_view record,
                              bool replace_existing);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_WRITER_H_
