// The one seam between File and the kernel. A test puts calls that fail or
// forget in its place.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_IO_SYSTEM_CALLS_H_
#define SHARDSHIFT_CKPT_IO_SYSTEM_CALLS_H_

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace shardshift::ckpt {

// The kernel's calls of the same names, which set errno and return a negative
// number on failure. Thread-safe.
class SystemCalls {
 public:
  SystemCalls() = default;
  virtual ~SystemCalls() = default;
  SystemCalls(const SystemCalls&) = delete;
  SystemCalls& operator=(const SystemCalls&) = delete;

  virtual int Open(const std::string& path, int flags, mode_t mode);
  virtual int Close(int fd);
  virtual ssize_t PRead(int fd, void* data, size_t num_bytes,
                        int64_t offset_bytes);
  virtual ssize_t PWrite(int fd, const void* data, size_t num_bytes,
                         int64_t offset_bytes);
  virtual int FSync(int fd);
  // Starts to write what is in the page cache.
  virtual int SyncFileRange(int fd, int64_t offset_bytes, int64_t num_bytes);
  virtual int FLock(int fd, int operation);  // flock
  virtual int FStat(int fd, struct stat* info);
  // By statx, of a file open with O_DIRECT: what memory addresses must be
  // multiples of; 0 where the kernel does not tell.
  virtual int64_t DirectMemoryAlignment(int fd);
  // Of the file system, not of the C library's emulation.
  virtual int FAllocate(int fd, int64_t num_bytes);
  // memfd_create: an empty file without a name.
  virtual int MemoryFile();

  virtual int Stat(const std::string& path, struct stat* info);
  virtual int LStat(const std::string& path, struct stat* info);
  virtual int StatVfs(const std::string& path, struct statvfs* info);
  // renameat2; `flags` 0 works on every kernel.
  virtual int Rename(const std::string& from, const std::string& to,
                     unsigned flags);
  virtual int Link(const std::string& from, const std::string& to);
  virtual int Unlink(const std::string& path);
  virtual int MkDir(const std::string& path, mode_t mode);
  virtual int RmDir(const std::string& path);
  // Adds the names within a directory but "." and "..", in any order.
  virtual int List(const std::string& path, std::vector<std::string>& names);

  // The kernel's, or those of the ScopedSystemCalls that is alive.
  static SystemCalls& Current();
};

// Puts `calls` in the place of the kernel's, for all threads. For tests; one
// at a time, made and destroyed while no other thread has a call under way.
class ScopedSystemCalls {
 public:
  explicit ScopedSystemCalls(SystemCalls& calls);
  ~ScopedSystemCalls();
  ScopedSystemCalls(const ScopedSystemCalls&) = delete;
  ScopedSystemCalls& operator=(const ScopedSystemCalls&) = delete;
};

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_IO_SYSTEM_CALLS_H_
