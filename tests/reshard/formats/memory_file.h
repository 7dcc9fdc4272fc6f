// Zip archives and files in memory, for tests.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_RESHARD_FORMATS_MEMORY_FILE_H_
#define SHARDSHIFT_TESTS_RESHARD_FORMATS_MEMORY_FILE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/crc32.h"
#include "ckpt/io/file.h"
#include "ckpt/io/system_calls.h"
#include "reshard/formats/zip.h"
#include "reshard/formats/zip_layout.h"
#include "tests/testutil/memory_disk.h"

namespace shardshift::reshard {

// An open file "/memory/file" of `bytes`. While it is there, no other files
// are.
class MemoryFile {
 public:
  explicit MemoryFile(std::string bytes)
      : disk_("/memory", {{"file", std::move(bytes)}}),
        scope_(disk_),
        file_(*ckpt::File::OpenForRead("/memory/file")) {}

  const ckpt::File& file() const { return file_; }
  FileRange all() const { return *WholeFile(file_); }

 private:
  ckpt::MemoryDisk disk_;
  ckpt::ScopedSystemCalls scope_;
  ckpt::File file_;
};

inline uint32_t CrcOf(absl::string_view bytes) {
  return ckpt::UpdateCrc32(0, ckpt::AsBytes(bytes));
}

using ZipFiles = std::vector<std::pair<std::string, std::string>>;

// The archive of these, as ZipLayout has it.
inline std::string ZipOf(const ZipFiles& files) {
  ZipLayout layout;
  std::vector<uint32_t> crcs;
  for (const auto& [name, bytes] : files) {
    layout.Add(name, std::ssize(bytes));
    crcs.push_back(CrcOf(bytes));
  }
  std::string zip;
  for (size_t i = 0; i < files.size(); ++i) {
    zip += layout.Header(i, crcs[i]);
    zip += files[i].second;
  }
  return zip + layout.End(crcs);
}

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_TESTS_RESHARD_FORMATS_MEMORY_FILE_H_
