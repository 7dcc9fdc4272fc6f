// Reading a checkpoint: any box of any tensor, however it was cut. Nothing is
// returned whose checksum was not verified, if the format has any.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_READER_H_
#define SHARDSHIFT_CKPT_READER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/block_reader.h"
#include "ckpt/core/box.h"
#include "ckpt/foreign_files.h"
#include "ckpt/format/table.h"
#include "ckpt/io/file.h"
#include "ckpt/range_crcs.h"

namespace shardshift::ckpt {

// The table of a step directory's index, verified.
// Errors: NotFound without an index; DataLoss for damage.
absl::StatusOr<Table> ReadIndexTable(const std::string& step_dir);

// Opens the part file that the index means by `part`.
// Errors: DataLoss if it is missing, damaged in front, or another file.
absl::StatusOr<File> OpenPart(const std::string& step_dir, const Part& part);

// Copy the elements of `what`, a box inside that of
// table().fragments[fragment], to `dst`, the dense image of dst_box, which
// contains `what`; converted as by ConvertValues() if `as` is another dtype
// than the tensor's.
struct FragmentRead {
  int64_t fragment = 0;
  Box what;
  std::byte* dst = nullptr;
  Box dst_box;
  std::optional<DType> as = std::nullopt;
};

// A block that a read wants.
struct BlockUse;

// What a reader wants of the part files.
enum class PartFiles {
  kNeeded,
  // None may be there, but not only some: for plans, which take no values.
  kAllOrNone,
};

// Keeps a shared lock on its directory, so that nobody deletes it. Const
// methods may be called from several threads at once.
class Reader {
 public:
  // Opens a step directory: checks the index (user block and table) and that
  // each part is there, of the right size, and the one the index was written
  // with. Errors: NotFound without an index; DataLoss for damage;
  // FailedPrecondition while somebody deletes it.
  static absl::StatusOr<std::unique_ptr<Reader>> Open(
      const std::string& step_dir, PartFiles parts = PartFiles::kNeeded);

  // Of files that are not ours. Nothing vouches for their values.
  static std::unique_ptr<Reader> OpenForeign(ForeignFiles files);

  // Reads all of a foreign checkpoint for its fingerprints, which the table has
  // from then on; nothing to do for ours. No other call at the same time.
  absl::Status TakeFingerprints();

  // Reads a block of a fragment, piece by piece.
  absl::StatusOr<BlockReader> OpenBlock(int64_t fragment, int64_t block) const;

  // From then on keeps, of the blocks of foreign files that are read as a whole
  // by OpenBlock or for fingerprints, the CRC-32s. No other call at the same
  // time.
  void KeepCrcs() { crcs_ = std::make_unique<RangeCrcs>(); }
  // Null if they are not kept.
  const RangeCrcs* crcs() const { return crcs_.get(); }

  const std::string& directory() const { return directory_; }
  const Table& table() const { return table_; }
  int64_t step() const { return table_.step; }
  const std::string& state() const { return table_.state; }
  const std::string& record() const { return table_.record; }
  // False if there is nothing but an index: every read fails.
  bool has_parts() const { return has_parts_; }
  // Sizes of the files of the checkpoint, together; as the index has them.
  int64_t total_bytes() const { return total_bytes_; }

  // Index into table().tensors. Errors: NotFound.
  absl::StatusOr<int64_t> FindTensor(absl::string_view name,
                                     absl::string_view role) const;

  // The fragments of a tensor: a range of table().fragments, from index
  // FirstFragment on.
  std::span<const Fragment> Fragments(int64_t tensor) const;
  int64_t FirstFragment(int64_t tensor) const {
    return first_fragment_[tensor];
  }

  std::string PathOf(int64_t part) const;

  // A part file, opened once and kept, with others, for a while.
  absl::StatusOr<std::shared_ptr<const File>> PartFile(int64_t part) const;

  // Does all of `reads`, on the default pool. Of the files it fetches the
  // blocks that they touch, each once, ascending; a block that goes to one
  // run of memory as AllocatePages() gives it, without a copy. After an error
  // `dst` holds anything.
  // Errors: DataLoss, naming file, tensor and offset; as CheckConversion().
  absl::Status Read(std::span<const FragmentRead> reads) const;

  // Fills `dst`, the dense image of `what`, from all the fragments it needs.
  // Errors: OutOfRange if `what` is not inside the tensor; as Read.
  absl::Status ReadTensor(int64_t tensor, const Box& what, std::byte* dst,
                          std::optional<DType> as = std::nullopt) const;

 private:
  Reader(std::string directory, Table table, int64_t total_bytes);

  // Of one block.
  absl::Status ReadUses(std::span<const BlockUse> uses,
                        std::span<const FragmentRead> reads) const;

  absl::StatusOr<File> OpenFile(int64_t part) const;

  std::optional<File> lock_;
  std::string directory_;
  Table table_;
  // By part, if they are not ours, as ForeignFiles has them.
  std::vector<std::string> foreign_paths_;
  std::map<int64_t, std::shared_ptr<const std::vector<std::byte>>>
      foreign_contents_;
  std::vector<int64_t> first_fragment_;  // by tensor, and one past the last
  int64_t total_bytes_ = 0;
  bool has_parts_ = true;
  std::unique_ptr<RangeCrcs> crcs_;  // null if they are not kept

  mutable std::mutex mutex_;
  // Open part files, by number; guarded by mutex_.
  mutable std::map<int64_t, std::shared_ptr<const File>> files_;
  // All that were opened, so that none is open twice.
  mutable std::map<int64_t, std::weak_ptr<const File>> lent_files_;
};

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_READER_H_
