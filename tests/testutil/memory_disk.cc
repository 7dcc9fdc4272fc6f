// SPDX-License-Identifier: Apache-2.0
#include "tests/testutil/memory_disk.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"

namespace shardshift::ckpt {
namespace {

int Fail(int error) {
  errno = error;
  return -1;
}

}  // namespace

bool MemoryDisk::Find(const std::string& path, std::string& name) const {
  if (path == directory_) {
    name.clear();
    return true;
  }
  if (absl::StartsWith(path, directory_ + "/")) {
    name = path.substr(directory_.size() + 1);
    if (files_.contains(name)) return true;
  }
  errno = ENOENT;
  return false;
}

void MemoryDisk::Describe(const std::string& name, struct stat* info) const {
  *info = {};
  info->st_mode = name.empty() ? S_IFDIR : S_IFREG;
  const auto file = files_.find(name);
  if (file == files_.end()) return;
  info->st_size = static_cast<off_t>(file->second.size());
}

int MemoryDisk::Open(const std::string& path, int flags, mode_t) {
  std::string name;
  if (!Find(path, name)) return -1;
  if ((flags & O_ACCMODE) != O_RDONLY) return Fail(EROFS);
  if ((flags & O_DIRECT) != 0) return Fail(EINVAL);
  const std::lock_guard lock(mutex_);
  const int fd = open_.empty() ? 1 << 20 : open_.rbegin()->first + 1;
  open_[fd] = name;
  return fd;
}

int MemoryDisk::Close(int fd) {
  const std::lock_guard lock(mutex_);
  return open_.erase(fd) == 1 ? 0 : Fail(EBADF);
}

ssize_t MemoryDisk::PRead(int fd, void* data, size_t num_bytes,
                          int64_t offset_bytes) {
  std::string name;
  {
    const std::lock_guard lock(mutex_);
    name = open_.at(fd);
  }
  const auto file = files_.find(name);
  if (file == files_.end()) return Fail(EISDIR);
  const std::string& bytes = file->second;
  const size_t begin =
      std::min(bytes.size(), static_cast<size_t>(offset_bytes));
  const size_t size = std::min(bytes.size() - begin, num_bytes);
  std::memcpy(data, bytes.data() + begin, size);
  return static_cast<ssize_t>(size);
}

int MemoryDisk::FLock(int, int) { return 0; }

int MemoryDisk::FStat(int fd, struct stat* info) {
  const std::lock_guard lock(mutex_);
  Describe(open_.at(fd), info);
  return 0;
}

int MemoryDisk::Stat(const std::string& path, struct stat* info) {
  return LStat(path, info);
}

int MemoryDisk::LStat(const std::string& path, struct stat* info) {
  std::string name;
  if (!Find(path, name)) return -1;
  Describe(name, info);
  return 0;
}

int MemoryDisk::List(const std::string& path, std::vector<std::string>& names) {
  if (path != directory_) return Fail(ENOENT);
  for (const auto& [name, bytes] : files_) names.push_back(name);
  return 0;
}

}  // namespace shardshift::ckpt
