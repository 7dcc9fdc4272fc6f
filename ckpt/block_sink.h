// A file under way that takes the values of its fragments block by block.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_BLOCK_SINK_H_
#define SHARDSHIFT_CKPT_BLOCK_SINK_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/core/box.h"
#include "ckpt/core/checksum.h"
#include "ckpt/core/dtype.h"
#include "ckpt/core/fingerprint.h"
#include "ckpt/format/table.h"
#include "ckpt/part_receipt.h"

namespace shardshift::ckpt {

// A box of a logical tensor that a file is to hold. It has an element, unless
// the tensor is empty: then one file holds its whole box.
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

class BlockSink {
 public:
  virtual ~BlockSink() = default;
  BlockSink(const BlockSink&) = delete;
  BlockSink& operator=(const BlockSink&) = delete;

  // Writes block `block` of specs[fragment]: `bytes` of the dense row-major
  // image of its box from byte block * kBlockBytes on. Blocks come in any
  // order, each once, and from several threads at once.
  // Errors: InvalidArgument for another number of bytes; as File::WriteAt.
  virtual absl::Status WriteBlock(int64_t fragment, int64_t block,
                                  std::span<const std::byte> bytes) = 0;

  // Writes all but the payload and syncs the file.
  // Errors: FailedPrecondition if not every block came exactly once.
  virtual absl::StatusOr<PartReceipt> Close() = 0;

 protected:
  // `table`: the file's own, of which table_index[i] is the fragment of
  // specs[i]; blocks have places, but no checksums.
  BlockSink(Table table, std::vector<int64_t> table_index);

  // Writes some bytes of a block without a codec, from byte `begin` of it on.
  virtual absl::Status WriteAt(const Fragment& fragment, int64_t block,
                               int64_t begin,
                               std::span<const std::byte> bytes) = 0;

  int64_t num_specs() const { return std::ssize(table_index_); }

  // Of specs[fragment].
  const Fragment& Target(int64_t fragment) const {
    return table_.fragments[table_index_[fragment]];
  }
  Fragment& Target(int64_t fragment) {
    return table_.fragments[table_index_[fragment]];
  }

  BoxFingerprint StartFingerprint(int64_t fragment, int64_t block) const;
  absl::Status CheckBlockSize(int64_t fragment, int64_t block,
                              std::span<const std::byte> bytes) const;
  // A block is there.
  absl::Status Record(int64_t fragment, int64_t block, uint64_t checksum,
                      const Fingerprint& fingerprint);
  // Errors: as Close(). REQUIRES: mutex_ is held.
  absl::Status CheckComplete(const std::string& path) const;

  std::mutex mutex_;  // guards the fingerprints and sums in table_ and:
  Table table_;

 private:
  friend class BlockStream;

  const std::vector<int64_t> table_index_;     // spec -> table_.fragments
  std::vector<Digest128> keys_;                // of fingerprints, by spec
  std::vector<std::vector<bool>> is_written_;  // by spec and block
  int64_t blocks_left_ = 0;
};

// A block that comes from front to back, in pieces; a buffer smaller than the
// block is enough for one without a codec. Its bytes lie in the buffer as they
// will on the pages of the file, so that most can bypass the page cache. One
// thread at a time.
class BlockStream {
 public:
  // `buffer`, of AllocatePages() and whole pages, is lent for as long as the
  // stream lives. REQUIRES: there is such a block; `sink` outlives the stream;
  // with a codec `buffer` has room for the whole block.
  BlockStream(BlockSink& sink, int64_t fragment, int64_t block,
              std::span<std::byte> buffer);

  // Where the next bytes go, no more than the block lacks.
  std::span<std::byte> room() const;

  // The first `num_bytes` of room() are there. Errors: as WriteBlock.
  absl::Status Advance(int64_t num_bytes);

  bool is_complete() const { return num_done_ == num_bytes_; }

 private:
  absl::Status Flush();

  BlockSink& sink_;
  int64_t fragment_;
  int64_t block_;
  std::span<std::byte> buffer_;
  const Fragment& target_;
  int64_t num_bytes_;     // of the block
  int64_t num_done_ = 0;  // that came
  int64_t lead_bytes_;    // before what is held
  int64_t num_held_ = 0;  // the last of them, in buffer_
  Checksum64Stream checksum_;
  BoxFingerprint fingerprint_;
};

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_BLOCK_SINK_H_
