// A file as it will be on disk, held in memory: the pages to which something
// was written. All else is zeros and costs nothing, so that an image of a file
// is as small as its metadata.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_FORMAT_FILE_IMAGE_H_
#define SHARDSHIFT_CKPT_FORMAT_FILE_IMAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "absl/status/status.h"
#include "ckpt/io/file.h"

namespace shardshift::ckpt {

// A half-open range of bytes of a file.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Offsets are not negative. Not thread-safe.
class FileImage {
 public:
  static constexpr int64_t kPageBytes = 4096;

  int64_t file_bytes() const { return file_bytes_; }
  int64_t num_pages() const { return static_cast<int64_t>(pages_.size()); }

  // Cuts the file, or lengthens it by zeros.
  void Resize(int64_t file_bytes);

  // Lengthens the file if need be.
  void Put(int64_t offset_bytes, std::span<const std::byte> bytes);

  // Zeros where nothing was put, and beyond the end.
  void Get(int64_t offset_bytes, std::span<std::byte> bytes) const;

  // Writes the pages within `range` to the same place of `file`, adjacent
  // ones together. What lies outside the range, or on no page, is not touched.
  absl::Status Write(const File& file, const ByteRange& range) const;

 private:
  using Page = std::array<std::byte, kPageBytes>;

  int64_t file_bytes_ = 0;
  std::map<int64_t, Page> pages_;  // by offset, a multiple of kPageBytes
};

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_FORMAT_FILE_IMAGE_H_
