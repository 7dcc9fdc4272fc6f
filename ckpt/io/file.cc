// SPDX-License-Identifier: Apache-2.0
#include "ckpt/io/file.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/aligned_buffer.h"
#include "ckpt/io/system_calls.h"

namespace shardshift::ckpt {
namespace {

SystemCalls& System() { return SystemCalls::Current(); }

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EEXIST:
    case ENOTEMPTY:
      return absl::StatusCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
      return absl::StatusCode::kResourceExhausted;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

// `cannot <what> <path>: <reason>`.
absl::Status SystemError(absl::string_view what, absl::string_view path,
                         int error = errno) {
  return absl::Status(CodeOf(error),
                      absl::StrCat("cannot ", what, " ", path, ": ",
                                   std::generic_category().message(error)));
}

// As SystemError(), of the last call; with figures if the disk is full.
absl::Status WriteError(absl::string_view what, const std::string& path,
                        int64_t num_bytes) {
  const int error = errno;
  absl::Status status = SystemError(what, path, error);
  if (error != ENOSPC) return status;
  const absl::StatusOr<int64_t> free = FreeBytes(path);
  if (!free.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), ": needs ", num_bytes,
                                   " bytes, ", *free, " are free"));
}

// Calls `call` again for as long as a signal interrupts it.
template <typename Call>
auto RetryOnSignal(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

// The errno, 0 if it did it.
int RenameWithFlags(const std::string& from, const std::string& to,
                    unsigned flags) {
  return System().Rename(from, to, flags) == 0 ? 0 : errno;
}

// Whether the kernel or the file system does not know a flag of renameat2.
bool IsUnsupported(int error) { return error == EINVAL || error == ENOSYS; }

// Whether flock fails so where the file system has no locks. EBADF: NFS has
// exclusive ones for files open for writing only, which directories are not.
bool HasNoLocks(int error) {
  return error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS ||
         error == EINVAL || error == EBADF;
}

absl::Status RenameError(const std::string& from, const std::string& to,
                         int error) {
  if (error == 0) return absl::OkStatus();
  return SystemError(absl::StrCat("rename ", from, " to"), to, error);
}

// "." for a name alone, "/" for the root.
std::string ParentOf(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  const size_t slash = path.rfind('/', end);
  if (end == std::string::npos || slash == 0) return "/";
  if (slash == std::string::npos) return ".";
  return path.substr(0, slash);
}

absl::Status RemoveEntry(const std::string& path) {
  struct stat info;
  if (System().LStat(path, &info) != 0) return SystemError("look at", path);
  if (!S_ISDIR(info.st_mode)) {
    if (System().Unlink(path) != 0) return SystemError("remove", path);
    return absl::OkStatus();
  }
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ListDirectory(path));
  for (const std::string& name : names) {
    SS_RETURN_IF_ERROR(RemoveEntry(JoinPath(path, name)));
  }
  if (System().RmDir(path) != 0) return SystemError("remove", path);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<File> File::Open(const std::string& path, int flags,
                                PageCache cache) {
  // O_NONBLOCK: opening a pipe that nobody writes to must not wait.
  flags |= O_CLOEXEC | O_NONBLOCK;
  const int fd =
      RetryOnSignal([&] { return System().Open(path, flags, 0666); });
  if (fd < 0) {
    return SystemError((flags & O_CREAT) != 0 ? "create" : "open", path);
  }
  File file(fd, path);
  struct stat info;
  if (System().FStat(fd, &info) != 0) return SystemError("look at", path);
  if (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is a pipe, not a regular file"));
  }
  if (cache == PageCache::kUse) return file;
  SS_RETURN_IF_ERROR(file.OpenDirect(flags & ~(O_CREAT | O_EXCL), info));
  return file;
}

absl::Status File::OpenDirect(int flags, const struct stat& self) {
  const int fd =
      RetryOnSignal([&] { return System().Open(path_, flags | O_DIRECT, 0); });
  if (fd < 0 && errno == EINVAL) return absl::OkStatus();
  if (fd < 0) return SystemError("open", path_);
  direct_fd_ = fd;
  struct stat info;
  if (System().FStat(fd, &info) != 0) return SystemError("look at", path_);
  if (info.st_dev != self.st_dev || info.st_ino != self.st_ino) {
    return absl::UnavailableError(
        absl::StrCat(path_, " was replaced while it was opened; try again"));
  }
  const int64_t alignment = System().DirectMemoryAlignment(fd);
  if (alignment > 0) memory_alignment_ = alignment;
  return absl::OkStatus();
}

absl::StatusOr<File> File::OpenForRead(const std::string& path,
                                       PageCache cache) {
  return Open(path, O_RDONLY, cache);
}
absl::StatusOr<File> File::OpenDirectory(const std::string& path) {
  return Open(path, O_RDONLY | O_DIRECTORY, PageCache::kUse);
}
absl::StatusOr<File> File::OpenForUpdate(const std::string& path,
                                         PageCache cache) {
  return Open(path, O_RDWR, cache);
}
absl::StatusOr<File> File::Create(const std::string& path, PageCache cache) {
  return Open(path, O_RDWR | O_CREAT | O_EXCL, cache);
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      direct_fd_(std::exchange(other.direct_fd_, -1)),
      memory_alignment_(other.memory_alignment_),
      path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(direct_fd_, other.direct_fd_);
  std::swap(memory_alignment_, other.memory_alignment_);
  std::swap(path_, other.path_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) System().Close(fd_);
  if (direct_fd_ >= 0) System().Close(direct_fd_);
}

bool File::TakesDirectly(std::span<const std::byte> bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  return !bypasses_cache() || address % memory_alignment_ == 0;
}

File::Step File::FirstStep(int64_t offset_bytes,
                           std::span<const std::byte> bytes) const {
  const auto head =
      static_cast<size_t>(RoundUpToDirectBlock(offset_bytes) - offset_bytes);
  if (!bypasses_cache() || bytes.size() < head + kMinDirectBytes ||
      !TakesDirectly(bytes.subspan(head))) {
    return {fd_, bytes.size()};
  }
  if (head > 0) return {fd_, head};
  return {direct_fd_, bytes.size() / kDirectBlockBytes * kDirectBlockBytes};
}

template <typename Byte, typename Call>
ssize_t File::Transfer(int64_t offset_bytes, std::span<Byte> bytes,
                       Call call) const {
  const Step step = FirstStep(offset_bytes, bytes);
  const ssize_t n = RetryOnSignal([&] {
    return call(step.fd, bytes.data(), step.num_bytes, offset_bytes);
  });
  // Some file systems refuse only here; so may a disk of larger blocks.
  if (n >= 0 || errno != EINVAL || step.fd != direct_fd_) return n;
  return RetryOnSignal(
      [&] { return call(fd_, bytes.data(), bytes.size(), offset_bytes); });
}

absl::Status File::ReadAt(int64_t offset_bytes,
                          std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n =
        Transfer(offset_bytes, bytes, [](int fd, auto... arguments) {
          return System().PRead(fd, arguments...);
        });
    if (n < 0) return SystemError("read", path_);
    if (n == 0) {
      return absl::DataLossError(absl::StrCat(path_, " ends at byte ",
                                              offset_bytes, ", ", bytes.size(),
                                              " bytes early"));
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset_bytes += n;
  }
  return absl::OkStatus();
}

absl::Status File::WriteAt(int64_t offset_bytes,
                           std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n =
        Transfer(offset_bytes, bytes, [](int fd, auto... arguments) {
          return System().PWrite(fd, arguments...);
        });
    if (n < 0) return WriteError("write", path_, std::ssize(bytes));
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset_bytes += n;
  }
  return absl::OkStatus();
}

absl::Status File::Allocate(int64_t num_bytes) const {
  if (num_bytes == 0 ||
      RetryOnSignal([&] { return System().FAllocate(fd_, num_bytes); }) == 0) {
    return absl::OkStatus();
  }
  if (errno != EOPNOTSUPP) return WriteError("allocate", path_, num_bytes);
  SS_ASSIGN_OR_RETURN(const int64_t size, Size());
  if (size >= num_bytes) return absl::OkStatus();
  const std::byte last{0};
  return WriteAt(num_bytes - 1, std::span(&last, 1));
}

absl::StatusOr<int64_t> File::Size() const {
  struct stat info;
  if (System().FStat(fd_, &info) != 0) return SystemError("look at", path_);
  return int64_t{info.st_size};
}

void File::StartSync(int64_t offset_bytes, int64_t num_bytes) const {
  // A hint: Sync() tells whether it could be done.
  System().SyncFileRange(fd_, offset_bytes, num_bytes);
}

absl::Status File::Sync() const {
  if (RetryOnSignal([&] { return System().FSync(fd_); }) != 0) {
    return SystemError("sync", path_);
  }
  return absl::OkStatus();
}

std::string JoinPath(absl::string_view directory, absl::string_view name) {
  if (directory.empty()) return std::string(name);
  const bool has_slash = directory.back() == '/';
  return absl::StrCat(directory, has_slash ? "" : "/", name);
}

absl::StatusOr<bool> Exists(const std::string& path) {
  struct stat info;
  if (System().LStat(path, &info) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return SystemError("look at", path);
}

absl::StatusOr<bool> IsDirectory(const std::string& path) {
  struct stat info;
  if (System().LStat(path, &info) != 0) return SystemError("look at", path);
  return S_ISDIR(info.st_mode);
}

absl::Status MakeDirectories(const std::string& path) {
  struct stat info;
  if (System().Stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
    return absl::OkStatus();
  }
  const std::string parent = ParentOf(path);
  if (parent != path) SS_RETURN_IF_ERROR(MakeDirectories(parent));
  // Another process may have been faster.
  if (System().MkDir(path, 0777) != 0 &&
      (errno != EEXIST || System().Stat(path, &info) != 0 ||
       !S_ISDIR(info.st_mode))) {
    return SystemError("create directory", path);
  }
  return SyncDirectory(parent);
}

absl::StatusOr<std::vector<std::string>> ListDirectory(
    const std::string& path) {
  std::vector<std::string> names;
  if (System().List(path, names) != 0) return SystemError("list", path);
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<File> LockDirectory(const std::string& path, Lock lock) {
  SS_ASSIGN_OR_RETURN(File directory, File::OpenDirectory(path));
  const int kind = lock == Lock::kShared ? LOCK_SH : LOCK_EX;
  const int result = RetryOnSignal(
      [&] { return System().FLock(directory.fd_, kind | LOCK_NB); });
  if (result == 0 || HasNoLocks(errno)) return directory;
  if (errno != EWOULDBLOCK) return SystemError("lock", path);
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is in use: another holds a lock on it"));
}

absl::Status SyncDirectory(const std::string& path) {
  SS_ASSIGN_OR_RETURN(const File directory, File::OpenDirectory(path));
  return directory.Sync();
}

absl::Status Rename(const std::string& from, const std::string& to) {
  return RenameError(from, to, RenameWithFlags(from, to, 0));
}

absl::Status RenameNoReplace(const std::string& from, const std::string& to) {
  const int error = RenameWithFlags(from, to, RENAME_NOREPLACE);
  if (!IsUnsupported(error)) return RenameError(from, to, error);
  SS_ASSIGN_OR_RETURN(const bool exists, Exists(to));
  return exists ? RenameError(from, to, EEXIST) : Rename(from, to);
}

absl::Status Exchange(const std::string& a, const std::string& b) {
  const int error = RenameWithFlags(a, b, RENAME_EXCHANGE);
  if (!IsUnsupported(error)) return RenameError(a, b, error);
  return absl::UnimplementedError(
      absl::StrCat("the file system of ", b,
                   " cannot replace a directory in one step; "
                   "remove the old one first"));
}

absl::Status LinkFile(const std::string& from, const std::string& to) {
  if (System().Link(from, to) == 0) return absl::OkStatus();
  return SystemError(absl::StrCat("link ", from, " to"), to);
}

absl::StatusOr<int64_t> FreeBytes(const std::string& path) {
  struct statvfs info;
  if (System().StatVfs(path, &info) != 0) return SystemError("look at", path);
  if (info.f_blocks == 0) return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(info.f_bavail * info.f_frsize);
}

absl::Status RemoveTree(const std::string& path) {
  SS_ASSIGN_OR_RETURN(const bool exists, Exists(path));
  return exists ? RemoveEntry(path) : absl::OkStatus();
}

}  // namespace shardshift::ckpt
