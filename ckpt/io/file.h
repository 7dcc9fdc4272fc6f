// POSIX files and directories with Status errors.
// Every error names the operation, the path and the system's reason: NotFound
// (ENOENT), AlreadyExists (EEXIST), ResourceExhausted (ENOSPC, EDQUOT,
// EMFILE, ENFILE), PermissionDenied (EACCES, EPERM, EROFS), else Unavailable.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_IO_FILE_H_
#define SHARDSHIFT_CKPT_IO_FILE_H_

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/io/aligned_buffer.h"

namespace shardshift::ckpt {

// How a File reads and writes. kBypass (O_DIRECT): the whole direct blocks
// (kDirectBlockBytes) of a read or write, if they are at least kMinDirectBytes
// and begin in memory where TakesDirectly() accepts it, go between disk and
// memory without a copy in the page cache. The rest, and all of it where the
// file system refuses, goes through the cache; both may be mixed in one file.
enum class PageCache { kUse, kBypass };

// Below this the cache is faster, as it need not wait for the disk.
inline constexpr int64_t kMinDirectBytes = int64_t{128} << 10;

// Many may hold a shared lock, or one an exclusive one.
enum class Lock { kShared, kExclusive };

// An open file. Reads and writes carry their offset, so that threads may
// share one File.
class File {
 public:
  // Errors of all three: FailedPrecondition for a pipe, which could keep a
  // reader waiting for ever.
  static absl::StatusOr<File> OpenForRead(const std::string& path,
                                          PageCache cache = PageCache::kUse);
  // An existing file, for reading and writing.
  static absl::StatusOr<File> OpenForUpdate(const std::string& path,
                                            PageCache cache = PageCache::kUse);
  // A new file; AlreadyExists if there is one.
  static absl::StatusOr<File> Create(const std::string& path,
                                     PageCache cache = PageCache::kUse);
  // Only to be synced.
  static absl::StatusOr<File> OpenDirectory(const std::string& path);
  // One that lies in memory alone, and is gone with the File; `path` names it
  // in messages.
  static absl::StatusOr<File> InMemory(std::string path,
                                       std::span<const std::byte> bytes);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  // All of `bytes`. Errors: DataLoss if the file ends before.
  absl::Status ReadAt(int64_t offset_bytes, std::span<std::byte> bytes) const;
  absl::Status WriteAt(int64_t offset_bytes,
                       std::span<const std::byte> bytes) const;
  absl::StatusOr<int64_t> Size() const;
  // Makes the file at least `num_bytes` long, zeros where nothing was
  // written, and where the file system can, reserves the room, so that a full
  // disk shows here: ResourceExhausted.
  absl::Status Allocate(int64_t num_bytes) const;
  // Lets the disk begin with a range, so that Sync() need not wait for all.
  void StartSync(int64_t offset_bytes, int64_t num_bytes) const;
  // Data and size are on the device when this returns OK.
  absl::Status Sync() const;

  const std::string& path() const { return path_; }
  // Whether the file system lets reads and writes bypass the cache.
  bool bypasses_cache() const { return direct_fd_ >= 0; }
  // Whether nothing is gained by moving `bytes` through other memory: they
  // begin where direct I/O can, or this file uses the cache.
  bool TakesDirectly(std::span<const std::byte> bytes) const;

 private:
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  static absl::StatusOr<File> Open(const std::string& path, int flags,
                                   PageCache cache);
  absl::Status OpenDirect(int flags, const struct stat& self);
  friend absl::StatusOr<File> LockDirectory(const std::string& path, Lock lock);
  // What of a transfer goes first, and by which descriptor.
  struct Step {
    int fd;
    size_t num_bytes;
  };
  Step FirstStep(int64_t offset_bytes, std::span<const std::byte> bytes) const;
  // One call(fd, data, size, offset) of the first step.
  template <typename Byte, typename Call>
  ssize_t Transfer(int64_t offset_bytes, std::span<Byte> bytes,
                   Call call) const;

  int fd_ = -1;
  // The same file with O_DIRECT, or -1.
  int direct_fd_ = -1;
  int64_t memory_alignment_ = kDirectBlockBytes;
  std::string path_;
};

std::string JoinPath(absl::string_view directory, absl::string_view name);

absl::StatusOr<bool> Exists(const std::string& path);

// Not by a symbolic link. Errors: NotFound if there is nothing.
absl::StatusOr<bool> IsDirectory(const std::string& path);

// Creates `path` and the missing directories above it, durably. OK if it is
// a directory.
absl::Status MakeDirectories(const std::string& path);

// Names (not paths) within a directory, sorted.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

// Locks a directory, by flock(2), until the File is gone: an agreement among
// processes, and among the Files of one, that stops nobody else. Does not
// wait. Where the file system has no locks, goes on without.
// Errors: FailedPrecondition if a lock of another is in the way.
absl::StatusOr<File> LockDirectory(const std::string& path, Lock lock);

// Makes what was created, renamed or removed in a directory durable.
absl::Status SyncDirectory(const std::string& path);

// Replaces `to` if it is a file.
absl::Status Rename(const std::string& from, const std::string& to);

// AlreadyExists if there is anything at `to`, atomically where the file
// system can.
absl::Status RenameNoReplace(const std::string& from, const std::string& to);

// Swaps the two names in one step. Errors: Unimplemented where the file
// system cannot.
absl::Status Exchange(const std::string& a, const std::string& b);

// A second name `to` for the file `from`, in the same file system; of a
// symbolic link, for what it leads to.
absl::Status LinkFile(const std::string& from, const std::string& to);

// What an ordinary user may still write to the file system of `path`; the
// greatest number where that does not tell.
absl::StatusOr<int64_t> FreeBytes(const std::string& path);

// Removes a file, or a directory with all in it. OK if there is none. Does
// not follow symbolic links.
absl::Status RemoveTree(const std::string& path);

// Small whole files.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);
// Writes `path` anew so that at any instant the old or the new text is there.
absl::Status ReplaceFile(const std::string& path, absl::string_view text);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_IO_FILE_H_
