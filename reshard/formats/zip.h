// The zip container as torch.save uses it: entries that are stored as they are,
// which a reader finds in the file and reads where they lie. The format:
// PKWARE's APPNOTE.TXT 6.3.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_ZIP_H_
#define SHARDSHIFT_RESHARD_FORMATS_ZIP_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/io/file.h"

namespace shardshift::reshard {

// A part of a file.
struct FileRange {
  int64_t offset_bytes = 0;
  int64_t num_bytes = 0;

  int64_t end_bytes() const { return offset_bytes + num_bytes; }
  bool operator==(const FileRange&) const = default;
};

// All of it.
absl::StatusOr<FileRange> WholeFile(const ckpt::File& file);

// Errors: DataLoss if the file does not have the range.
absl::Status CheckRange(const ckpt::File& file, FileRange range);

// REQUIRES: whoever gives the range has bounded it.
absl::StatusOr<std::string> ReadRange(const ckpt::File& file, FileRange range);

struct ZipEntry {
  std::string name;
  FileRange payload;   // in the file, not the archive
  uint32_t crc32 = 0;  // of the payload, as the archive says: not checked
};

class ZipArchive {
 public:
  // Of the archive that `range` of the file is, all of it. Reads the directory
  // and every local header, no payload.
  // Errors: DataLoss for what is no whole archive, and for entries that
  // overlap, leave it, have one name, or whose two headers disagree;
  // Unimplemented for entries that are compressed or encrypted;
  // ResourceExhausted for a directory of more than kMaxZipDirectoryBytes.
  static absl::StatusOr<ZipArchive> Read(const ckpt::File& file,
                                         FileRange range);

  // By place in the file.
  const std::vector<ZipEntry>& entries() const { return entries_; }
  // Nullptr if there is none.
  const ZipEntry* Find(absl::string_view name) const;

 private:
  std::vector<ZipEntry> entries_;
  absl::flat_hash_map<std::string, size_t> by_name_;
};
inline constexpr int64_t kMaxZipDirectoryBytes = int64_t{1} << 28;

// The payload of an entry. Errors: DataLoss if it has not the entry's CRC;
// ResourceExhausted if it is larger than `max_bytes`.
absl::StatusOr<std::string> ReadZipEntry(const ckpt::File& file,
                                         const ZipEntry& entry,
                                         int64_t max_bytes);
// Reads the payload, however large, only to check it.
absl::Status CheckZipEntry(const ckpt::File& file, const ZipEntry& entry);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_ZIP_H_
