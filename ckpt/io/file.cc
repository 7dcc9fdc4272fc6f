// SPDX-License-Identifier: Apache-2.0
#include "ckpt/io/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::ckpt {
namespace {

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

// Calls `call` again for as long as a signal interrupts it.
template <typename Call>
auto RetryOnSignal(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

// The errno of renameat2, 0 if it did it.
int RenameWithFlags(const std::string& from, const std::string& to,
                    unsigned flags) {
  const int64_t result = ::syscall(SYS_renameat2, AT_FDCWD, from.c_str(),
                                   AT_FDCWD, to.c_str(), flags);
  return result == 0 ? 0 : errno;
}

// Whether the kernel or the file system does not know a flag of renameat2.
bool IsUnsupported(int error) { return error == EINVAL || error == ENOSYS; }

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
  if (::lstat(path.c_str(), &info) != 0) return SystemError("look at", path);
  if (!S_ISDIR(info.st_mode)) {
    if (::unlink(path.c_str()) != 0) return SystemError("remove", path);
    return absl::OkStatus();
  }
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ListDirectory(path));
  for (const std::string& name : names) {
    SS_RETURN_IF_ERROR(RemoveEntry(JoinPath(path, name)));
  }
  if (::rmdir(path.c_str()) != 0) return SystemError("remove", path);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<File> File::Open(const std::string& path, int flags) {
  // O_NONBLOCK: opening a pipe that nobody writes to must not wait.
  const int fd = RetryOnSignal([&] {
    return ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0666);
  });
  if (fd < 0) {
    return SystemError((flags & O_CREAT) != 0 ? "create" : "open", path);
  }
  File file(fd, path);
  struct stat status;
  if (::fstat(fd, &status) != 0) return SystemError("look at", path);
  if (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is a pipe, not a regular file"));
  }
  return file;
}

absl::StatusOr<File> File::OpenForRead(const std::string& path) {
  return Open(path, O_RDONLY);
}
absl::StatusOr<File> File::OpenDirectory(const std::string& path) {
  return Open(path, O_RDONLY | O_DIRECTORY);
}
absl::StatusOr<File> File::OpenForUpdate(const std::string& path) {
  return Open(path, O_RDWR);
}
absl::StatusOr<File> File::Create(const std::string& path) {
  return Open(path, O_RDWR | O_CREAT | O_EXCL);
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status File::ReadAt(int64_t offset_bytes,
                          std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = RetryOnSignal(
        [&] { return ::pread(fd_, bytes.data(), bytes.size(), offset_bytes); });
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
    const ssize_t n = RetryOnSignal([&] {
      return ::pwrite(fd_, bytes.data(), bytes.size(), offset_bytes);
    });
    if (n < 0) return SystemError("write", path_);
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset_bytes += n;
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> File::Size() const {
  struct stat info;
  if (::fstat(fd_, &info) != 0) return SystemError("look at", path_);
  return int64_t{info.st_size};
}

absl::Status File::Sync() const {
  if (RetryOnSignal([&] { return ::fsync(fd_); }) != 0) {
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
  if (::lstat(path.c_str(), &info) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return SystemError("look at", path);
}

absl::Status MakeDirectories(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return absl::OkStatus();
  }
  const std::string parent = ParentOf(path);
  if (parent != path) SS_RETURN_IF_ERROR(MakeDirectories(parent));
  // Another process may have been faster.
  if (::mkdir(path.c_str(), 0777) != 0 &&
      (errno != EEXIST || ::stat(path.c_str(), &info) != 0 ||
       !S_ISDIR(info.st_mode))) {
    return SystemError("create directory", path);
  }
  return SyncDirectory(parent);
}

absl::StatusOr<std::vector<std::string>> ListDirectory(
    const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()),
                                                      ::closedir);
  if (directory == nullptr) return SystemError("list", path);
  std::vector<std::string> names;
  errno = 0;
  // Safe: the stream is this call's own.
  while (const dirent* entry =
             ::readdir(directory.get())) {  // NOLINT(concurrency-mt-unsafe)
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  if (errno != 0) return SystemError("list", path);
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status SyncDirectory(const std::string& path) {
  SS_ASSIGN_OR_RETURN(const File directory, File::OpenDirectory(path));
  return directory.Sync();
}

absl::Status Rename(const std::string& from, const std::string& to) {
  const int result = ::rename(from.c_str(), to.c_str());
  return RenameError(from, to, result == 0 ? 0 : errno);
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

absl::Status RemoveTree(const std::string& path) {
  SS_ASSIGN_OR_RETURN(const bool exists, Exists(path));
  return exists ? RemoveEntry(path) : absl::OkStatus();
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  SS_ASSIGN_OR_RETURN(const File file, File::OpenForRead(path));
  SS_ASSIGN_OR_RETURN(const int64_t size, file.Size());
  std::string text(static_cast<size_t>(size), '\0');
  SS_RETURN_IF_ERROR(file.ReadAt(
      0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  return text;
}

absl::Status ReplaceFile(const std::string& path, absl::string_view text) {
  const std::string temporary = path + ".partial";
  SS_RETURN_IF_ERROR(RemoveTree(temporary));
  SS_ASSIGN_OR_RETURN(const File file, File::Create(temporary));
  SS_RETURN_IF_ERROR(file.WriteAt(0, AsBytes(text)));
  SS_RETURN_IF_ERROR(file.Sync());
  return Rename(temporary, path);
}

}  // namespace shardshift::ckpt
