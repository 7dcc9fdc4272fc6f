// Writes a file that is not ours: what is not payload is known beforehand.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_FOREIGN_WRITER_H_
#define SHARDSHIFT_CKPT_FOREIGN_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/block_sink.h"
#include "ckpt/foreign_files.h"
#include "ckpt/format/table.h"
#include "ckpt/io/file.h"

namespace shardshift::ckpt {

// Bytes of a file that do not depend on the payload.
struct FixedBytes {
  int64_t offset_bytes = 0;
  std::string bytes;
};

struct ForeignFile {
  std::string name;  // within the directory; may have some itself
  int64_t file_bytes = 0;
  std::vector<FixedBytes> fixed;
  std::vector<FragmentSpec> specs;
  std::vector<ForeignPlace> places;  // of the specs; `file` is not looked at
  // Bytes that hold the CRC-32s of zip of the specs' images, once all payload
  // is there. REQUIRES: no column pitch.
  std::function<std::vector<FixedBytes>(std::span<const uint32_t> crcs)>
      finish = nullptr;
};

// A file without specs: what is fixed, and what `finish` gives.
// Errors: AlreadyExists; as File.
absl::Status WriteFileWithoutTensors(const std::string& directory,
                                     const ForeignFile& file);

// What neither a fragment nor fixed bytes cover is zero.
class ForeignWriter : public BlockSink {
 public:
  // Creates DIR/NAME with what is fixed.
  // `file` outlives the writer, and has specs. Errors: InvalidArgument for
  // specs that contradict each other, or are outside the file; AlreadyExists;
  // as File.
  static absl::StatusOr<std::unique_ptr<ForeignWriter>> Create(
      const std::string& directory, const ForeignFile& file,
      const CheckpointId& id);

  absl::Status WriteBlock(int64_t fragment, int64_t block,
                          std::span<const std::byte> bytes) override;

  // Its receipt has the fingerprints of what was written.
  absl::StatusOr<PartReceipt> Close() override;

 private:
  ForeignWriter(File file, const ForeignFile& plan, Table table,
                std::vector<int64_t> table_index);

  absl::Status WriteAt(const Fragment& fragment, int64_t block, int64_t begin,
                       std::span<const std::byte> bytes) override;

  // The CRC-32 of the image of specs[fragment]. REQUIRES: all of it came.
  uint32_t ImageCrc(int64_t fragment) const;

  File file_;
  const ForeignFile& plan_;
  // By fragment of the table and block; each is one thread's at a time.
  std::vector<std::vector<uint32_t>> crcs_;
};

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_FOREIGN_WRITER_H_
