// Writing a checkpoint: parts into RUN/step-N.partial, each by its own writer
// (another thread or process may do each), then one commit.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_WRITER_H_
#define SHARDSHIFT_CKPT_WRITER_H_

#include <condition_variable>
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
#include "ckpt/block_sink.h"
#include "ckpt/core/box.h"
#include "ckpt/core/checksum.h"
#include "ckpt/core/dtype.h"
#include "ckpt/core/fingerprint.h"
#include "ckpt/format/table.h"
#include "ckpt/format/user_block.h"
#include "ckpt/hdf5/part_file.h"
#include "ckpt/io/file.h"
#include "ckpt/part_receipt.h"

namespace shardshift::ckpt {

// Writes one part file. Distinct writers are independent.
class PartWriter : public BlockSink {
 public:
  // Creates DIR/part-NNNNN.h5 for the fragments, in the given order, with room
  // for those without a codec. The bytes of the file depend on the arguments
  // and payload only; with a codec, on the version of its library too.
  // Errors: InvalidArgument for specs that contradict each other or name a
  // box twice, or for no specs at all (an empty part is not written).
  static absl::StatusOr<std::unique_ptr<PartWriter>> Create(
      const std::string& directory, int64_t part, const CheckpointId& id,
      const std::vector<FragmentSpec>& specs, Codec codec = Codec::kNone);

  // Leaves an unfinished file behind, which no reader accepts.
  ~PartWriter() override = default;

  // `bytes` in memory as AllocatePages() gives it are written without a copy.
  // With a codec a block waits until all blocks before it, by fragment and
  // block, have their places: they must come from other threads or have come.
  // If one of them fails, so do all that come after it.
  // Errors: as BlockSink; DeadlineExceeded for a block before that does not
  // come.
  absl::Status WriteBlock(int64_t fragment, int64_t block,
                          std::span<const std::byte> bytes) override;

  // Writes all blocks of all fragments, of which images[i] is the one of
  // specs[i], on the default pool.
  absl::Status WriteFragments(
      std::span<const std::span<const std::byte>> images);

  absl::StatusOr<PartReceipt> Close() override;

 private:
  PartWriter(int64_t part, File file, PartLayout layout, Table table,
             std::vector<int64_t> table_index);

  absl::Status WriteAt(const Fragment& fragment, int64_t block, int64_t begin,
                       std::span<const std::byte> bytes) override;

  // Both write `bytes` as block `block` of the fragment, add them to
  // `fingerprint` and give the checksum of what is stored.
  absl::StatusOr<uint64_t> WritePlain(const Block& block,
                                      std::span<const std::byte> bytes,
                                      BoxFingerprint& fingerprint);
  absl::StatusOr<uint64_t> WriteCompressed(int64_t fragment, int64_t block,
                                           std::span<const std::byte> bytes,
                                           BoxFingerprint& fingerprint);
  absl::Status PlaceInTurn(int64_t turn, Fragment& target, int64_t block,
                           std::span<const std::byte> stored);

  int64_t part_;
  File file_;
  // How many blocks with a codec come before those of a spec.
  std::vector<int64_t> first_turn_;

  // Guarded by mutex_, too.
  PartLayout layout_;
  std::condition_variable turn_passed_;
  int64_t next_turn_ = 0;
  bool has_failed_ = false;  // a block with a codec, so that no other may come
};

// Creates RUN/step-N.partial, empty, and RUN itself if need be; gives its
// path. Leftovers of stopped saves, of any step, are removed first if they hold
// nothing but files a save writes: one save at a time in a run.
// Errors: AlreadyExists for any other thing of that name.
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
