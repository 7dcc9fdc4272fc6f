// Files that are strings.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_TESTUTIL_MEMORY_DISK_H_
#define SHARDSHIFT_TESTS_TESTUTIL_MEMORY_DISK_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "ckpt/io/system_calls.h"

namespace shardshift::ckpt {

// System calls that read files of one directory from memory; nothing can be
// written through them, and no other path exists. There is no direct I/O.
// Thread-safe but for files().
class MemoryDisk : public SystemCalls {
 public:
  // By name. To be changed with no call under way; an open file follows.
  using Files = std::map<std::string, std::string>;

  explicit MemoryDisk(std::string directory, Files files = {})
      : directory_(std::move(directory)), files_(std::move(files)) {}

  Files& files() { return files_; }

  int Open(const std::string& path, int flags, mode_t mode) override;
  int Close(int fd) override;
  ssize_t PRead(int fd, void* data, size_t num_bytes,
                int64_t offset_bytes) override;
  int FLock(int fd, int operation) override;
  int FStat(int fd, struct stat* info) override;
  int Stat(const std::string& path, struct stat* info) override;
  int LStat(const std::string& path, struct stat* info) override;
  int List(const std::string& path, std::vector<std::string>& names) override;

 private:
  // The name of a file in the directory, "" for the directory itself;
  // sets errno and gives false if there is none.
  bool Find(const std::string& path, std::string& name) const;
  void Describe(const std::string& name, struct stat* info) const;

  const std::string directory_;
  Files files_;
  std::mutex mutex_;
  std::map<int, std::string> open_;  // names by number; guarded by mutex_
};

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_TESTS_TESTUTIL_MEMORY_DISK_H_
