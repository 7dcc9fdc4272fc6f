// Where everything in a zip to be written goes, before any payload is there.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_ZIP_LAYOUT_H_
#define SHARDSHIFT_RESHARD_FORMATS_ZIP_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace shardshift::reshard {

// Entries are stored as they are, in the order of adding. A payload begins at
// a multiple of kAlignmentBytes of the archive, as torch.save has it for those
// who map files. The headers hold the CRCs, so they are made when all payload
// is written, in any order, or passed by.
class ZipLayout {
 public:
  static constexpr int64_t kAlignmentBytes = 64;

  // Gives the entry's position. REQUIRES: a name of 1 to 65535 bytes of UTF-8
  // that no other entry has; all sizes together stay far below 2^63.
  size_t Add(absl::string_view name, int64_t num_bytes);

  size_t num_entries() const { return entries_.size(); }
  // Where the payload is in the archive, and how long.
  int64_t payload_offset(size_t entry) const {
    return entries_[entry].payload_bytes;
  }
  int64_t payload_size(size_t entry) const {
    return entries_[entry].size_bytes;
  }

  // The local header goes to header_offset() and ends where the payload
  // begins.
  int64_t header_offset(size_t entry) const {
    return entries_[entry].header_bytes;
  }
  std::string Header(size_t entry, uint32_t crc32) const;

  // The directory and the end records go to end_offset() and end the archive.
  // `crcs` has one for each entry.
  int64_t end_offset() const { return end_bytes_; }
  std::string End(std::span<const uint32_t> crcs) const;
  int64_t total_bytes() const;

 private:
  struct Entry {
    std::string name;
    int64_t header_bytes = 0;   // offset of the local header
    int64_t payload_bytes = 0;  // offset of the payload
    int64_t size_bytes = 0;
  };

  int64_t DirectoryBytes() const;
  bool NeedsEnd64(int64_t directory_bytes) const;

  std::vector<Entry> entries_;
  int64_t end_bytes_ = 0;
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_ZIP_LAYOUT_H_
