// One block of payload that is used in pieces, but verified as a whole.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_BLOCK_READER_H_
#define SHARDSHIFT_CKPT_BLOCK_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "ckpt/core/checksum.h"
#include "ckpt/format/table.h"
#include "ckpt/io/aligned_buffer.h"
#include "ckpt/io/file.h"
#include "ckpt/range_crcs.h"

namespace shardshift::ckpt {

// Ranges are of the block's values, in bytes. One thread at a time.
class BlockReader {
 public:
  // REQUIRES: `table` outlives the reader, and so does `crcs`, which of a block
  // of a foreign file gets the CRC-32.
  BlockReader(std::shared_ptr<const File> file, const Table& table,
              const Fragment& fragment, int64_t block,
              RangeCrcs* crcs = nullptr);

  // Reads values [begin, end) to pages[begin % kDirectBlockBytes] and on;
  // `pages` has room for whole pages around them, which makes the read a
  // direct one, and what else lies there is lost. Ranges ascend; what they
  // leave out is read too, for the checksum. It is known to be right once the
  // last value was read, or Finish() called: only then are the values
  // vouched for.
  // Errors: DataLoss, naming file, tensor and offset.
  absl::Status Read(int64_t begin, int64_t end, std::span<std::byte> pages);

  // Reads what is left, and verifies the block.
  absl::Status Finish();

  int64_t num_bytes() const { return num_bytes_; }

 private:
  absl::Status ReadStored(int64_t begin, int64_t end,
                          std::span<std::byte> pages);
  absl::Status Decompress();
  // All of it was read.
  absl::Status CheckAll();

  std::shared_ptr<const File> file_;
  const Table& table_;
  const Fragment& fragment_;
  int64_t block_;
  int64_t num_bytes_;
  RangeCrcs* crcs_;
  int64_t position_ = 0;  // all before went into checksum_ or crc32_
  Checksum64Stream checksum_;
  uint32_t crc32_ = 0;
  std::optional<StagingBuffer> values_;  // of a block with a codec
};

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_BLOCK_READER_H_
