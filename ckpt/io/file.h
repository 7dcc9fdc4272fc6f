// POSIX files and directories with Status errors.
// Every error names the operation, the path and the system's reason: NotFound
// (ENOENT), AlreadyExists (EEXIST), ResourceExhausted (ENOSPC, EDQUOT,
// EMFILE, ENFILE), PermissionDenied (EACCES, EPERM, EROFS), else Unavailable.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_IO_FILE_H_
#define SHARDSHIFT_CKPT_IO_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shardshift::ckpt {

// An open file. Reads and writes carry their offset, so that threads may
// share one File.
class File {
 public:
  // Errors of all three: FailedPrecondition for a pipe, which could keep a
  // reader waiting for ever.
  static absl::StatusOr<File> OpenForRead(const std::string& path);
  // An existing file, for reading and writing.
  static absl::StatusOr<File> OpenForUpdate(const std::string& path);
  // A new file; AlreadyExists if there is one.
  static absl::StatusOr<File> Create(const std::string& path);
  // Only to be synced.
  static absl::StatusOr<File> OpenDirectory(const std::string& path);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  // All of `bytes`. Errors: DataLoss if the file ends before.
  absl::Status ReadAt(int64_t offset_bytes, std::span<std::byte> bytes) const;
  absl::Status WriteAt(int64_t offset_bytes,
                       std::span<const std::byte> bytes) const;
  absl::StatusOr<int64_t> Size() const;
  // Data and size are on the device when this returns OK.
  absl::Status Sync() const;

  const std::string& path() const { return path_; }

 private:
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  static absl::StatusOr<File> Open(const std::string& path, int flags);

  int fd_ = -1;
  std::string path_;
};

std::string JoinPath(absl::string_view directory, absl::string_view name);

absl::StatusOr<bool> Exists(const std::string& path);

// Creates `path` and the missing directories above it, durably. OK if it is
// a directory.
absl::Status MakeDirectories(const std::string& path);

// Names (not paths) within a directory, sorted.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

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

// Removes a file, or a directory with all in it. OK if there is none. Does
// not follow symbolic links.
absl::Status RemoveTree(const std::string& path);

// Small whole files.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);
// Writes `path` anew so that at any instant the old or the new text is there.
absl::Status ReplaceFile(const std::string& path, absl::string_view text);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_IO_FILE_H_
