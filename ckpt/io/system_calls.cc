// SPDX-License-Identifier: Apache-2.0
#include "ckpt/io/system_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>

namespace shardshift::ckpt {
namespace {

std::atomic<SystemCalls*> replacement = nullptr;

}  // namespace

int SystemCalls::Open(const std::string& path, int flags, mode_t mode) {
  return ::open(path.c_str(), flags, mode);
}

int SystemCalls::Close(int fd) { return ::close(fd); }

ssize_t SystemCalls::PRead(int fd, void* data, size_t num_bytes,
                           int64_t offset_bytes) {
  return ::pread(fd, data, num_bytes, offset_bytes);
}

ssize_t SystemCalls::PWrite(int fd, const void* data, size_t num_bytes,
                            int64_t offset_bytes) {
  return ::pwrite(fd, data, num_bytes, offset_bytes);
}

int SystemCalls::FLock(int fd, int operation) { return ::flock(fd, operation); }

int SystemCalls::FSync(int fd) { return ::fsync(fd); }

int SystemCalls::SyncFileRange(int fd, int64_t offset_bytes,
                               int64_t num_bytes) {
  return ::sync_file_range(fd, offset_bytes, num_bytes, SYNC_FILE_RANGE_WRITE);
}

int SystemCalls::FStat(int fd, struct stat* info) { return ::fstat(fd, info); }

int64_t SystemCalls::DirectMemoryAlignment(int fd) {
#ifdef STATX_DIOALIGN
  struct statx info = {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
      (info.stx_mask & STATX_DIOALIGN) != 0) {
    return info.stx_dio_mem_align;
  }
#endif
  return 0;
}

int SystemCalls::FAllocate(int fd, int64_t num_bytes) {
  return ::fallocate(fd, 0, 0, num_bytes);
}

int SystemCalls::MemoryFile() {
  return ::memfd_create("shardshift", MFD_CLOEXEC);
}

int SystemCalls::Stat(const std::string& path, struct stat* info) {
  return ::stat(path.c_str(), info);
}

int SystemCalls::LStat(const std::string& path, struct stat* info) {
  return ::lstat(path.c_str(), info);
}

int SystemCalls::StatVfs(const std::string& path, struct statvfs* info) {
  return ::statvfs(path.c_str(), info);
}

int SystemCalls::Rename(const std::string& from, const std::string& to,
                        unsigned flags) {
  if (flags == 0) return ::rename(from.c_str(), to.c_str());
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from.c_str(),
                                    AT_FDCWD, to.c_str(), flags));
}

int SystemCalls::Link(const std::string& from, const std::string& to) {
  return ::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(),
                  AT_SYMLINK_FOLLOW);
}

int SystemCalls::Unlink(const std::string& path) {
  return ::unlink(path.c_str());
}

int SystemCalls::MkDir(const std::string& path, mode_t mode) {
  return ::mkdir(path.c_str(), mode);
}

int SystemCalls::RmDir(const std::string& path) {
  return ::rmdir(path.c_str());
}

int SystemCalls::List(const std::string& path,
                      std::vector<std::string>& names) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()),
                                                      ::closedir);
  if (directory == nullptr) return -1;
  errno = 0;
  // Safe: the stream is this call's own.
  while (const dirent* entry =
             ::readdir(directory.get())) {  // NOLINT(concurrency-mt-unsafe)
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  return errno == 0 ? 0 : -1;
}

SystemCalls& SystemCalls::Current() {
  // Never destroyed: a File may outlive what has a destructor.
  static SystemCalls& kernel = *new SystemCalls;
  SystemCalls* const calls = replacement.load(std::memory_order_acquire);
  return calls == nullptr ? kernel : *calls;
}

ScopedSystemCalls::ScopedSystemCalls(SystemCalls& calls) {
  replacement.store(&calls, std::memory_order_release);
}

ScopedSystemCalls::~ScopedSystemCalls() {
  replacement.store(nullptr, std::memory_order_release);
}

}  // namespace shardshift::ckpt
