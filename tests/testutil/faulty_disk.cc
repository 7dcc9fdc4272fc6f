// SPDX-License-Identifier: Apache-2.0
#include "tests/testutil/faulty_disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <mutex>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/testutil/unsynced_changes.h"

namespace shardshift::ckpt {
namespace {

enum class FaultKind { kNone, kFail, kShorten, kFill, kCrash };

struct Fault {
  FaultKind kind = FaultKind::kNone;
  int64_t operation = std::numeric_limits<int64_t>::max();
  int error = 0;
};

// What a write at full length may become: half of it, to an odd byte.
size_t HalfOf(size_t num_bytes) {
  return std::min(num_bytes, num_bytes / 2 | 1);
}

// The file of `fd` through the page cache, in which any length is allowed.
class Buffered {
 public:
  Buffered(int fd, int flags)
      : fd_(::open(absl::StrCat("/proc/self/fd/", fd).c_str(), flags)) {}
  ~Buffered() { ::close(fd_); }
  Buffered(const Buffered&) = delete;
  Buffered& operator=(const Buffered&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

struct FaultyDisk::State {
  explicit State(std::string root_path)
      : root(std::move(root_path)), changes(root + ".lost") {}

  bool Holds(const std::string& path) const {
    return path == root || absl::StartsWith(path, root + "/");
  }
  bool Holds(int fd) const { return fds.contains(fd); }

  // Counts an operation. Whether the fault lets it happen; errno if not.
  bool Begin(bool needs_room) {
    const int64_t n = num_operations++;
    const bool is_it = n == fault.operation;
    switch (fault.kind) {
      case FaultKind::kNone:
        return true;
      case FaultKind::kFail:
        errno = fault.error;
        return !is_it;
      case FaultKind::kShorten:
        errno = fault.error;
        return fault.error == 0 || n != fault.operation + 1;
      case FaultKind::kFill:
        errno = ENOSPC;
        return n < fault.operation || !needs_room;
      case FaultKind::kCrash:
        errno = EIO;
        return n < fault.operation;
    }
    return true;
  }

  // Whether the operation that has begun is to be cut.
  bool Shortens() const {
    return fault.kind == FaultKind::kShorten &&
           num_operations == fault.operation + 1;
  }

  const std::string root;
  std::mutex mutex;
  int64_t num_operations = 0;
  Fault fault;
  // Open files and directories below the root.
  std::set<int> fds;
  UnsyncedChanges changes;
};

FaultyDisk::FaultyDisk(std::string root)
    : state_(std::make_unique<State>(std::move(root))) {}

FaultyDisk::~FaultyDisk() = default;

int64_t FaultyDisk::num_operations() const {
  const std::lock_guard lock(state_->mutex);
  return state_->num_operations;
}

bool FaultyDisk::has_struck() const {
  const std::lock_guard lock(state_->mutex);
  return state_->num_operations > state_->fault.operation;
}

void FaultyDisk::FailAt(int64_t operation, int error) {
  state_->fault = {FaultKind::kFail, operation, error};
}
void FaultyDisk::ShortenAt(int64_t operation, int error) {
  state_->fault = {FaultKind::kShorten, operation, error};
}
void FaultyDisk::FillAt(int64_t operation) {
  state_->fault = {FaultKind::kFill, operation, ENOSPC};
}
void FaultyDisk::CrashAt(int64_t operation) {
  state_->fault = {FaultKind::kCrash, operation, EIO};
}

void FaultyDisk::LoseUnsyncedData(Loss loss, uint64_t seed) {
  state_->fault = {};
  if (loss == Loss::kAll) {
    state_->changes.LoseAll();
  } else {
    state_->changes.LoseSome(seed);
  }
}

int FaultyDisk::Open(const std::string& path, int flags, mode_t mode) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->Holds(path)) {
    const int fd = SystemCalls::Open(path, flags, mode);
    state_->fds.erase(fd);
    return fd;
  }
  struct stat info;
  const bool creates = (flags & O_CREAT) != 0 &&
                       SystemCalls::LStat(path, &info) != 0 && errno == ENOENT;
  if (!state_->Begin(creates)) return -1;
  const int fd = SystemCalls::Open(path, flags, mode);
  if (fd < 0) return fd;
  if (creates) state_->changes.RecordCreation(path);
  state_->fds.insert(fd);
  return fd;
}

int FaultyDisk::Close(int fd) {
  const std::lock_guard lock(state_->mutex);
  state_->fds.erase(fd);
  return SystemCalls::Close(fd);
}

ssize_t FaultyDisk::PRead(int fd, void* data, size_t num_bytes,
                          int64_t offset_bytes) {
  const std::lock_guard lock(state_->mutex);
  if (state_->Holds(fd)) {
    if (!state_->Begin(false)) return -1;
    if (state_->Shortens()) {
      return SystemCalls::PRead(Buffered(fd, O_RDONLY).fd(), data,
                                HalfOf(num_bytes), offset_bytes);
    }
  }
  return SystemCalls::PRead(fd, data, num_bytes, offset_bytes);
}

ssize_t FaultyDisk::PWrite(int fd, const void* data, size_t num_bytes,
                           int64_t offset_bytes) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->Holds(fd)) {
    return SystemCalls::PWrite(fd, data, num_bytes, offset_bytes);
  }
  if (!state_->Begin(true)) return -1;
  if (state_->Shortens()) {
    return state_->changes.PWrite(Buffered(fd, O_RDWR).fd(), data,
                                  HalfOf(num_bytes), offset_bytes);
  }
  return state_->changes.PWrite(fd, data, num_bytes, offset_bytes);
}

int FaultyDisk::FSync(int fd) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->Holds(fd)) return SystemCalls::FSync(fd);
  if (!state_->Begin(false)) return -1;
  state_->changes.RecordSync(fd);
  return 0;
}

int FaultyDisk::FStat(int fd, struct stat* info) {
  const std::lock_guard lock(state_->mutex);
  if (state_->Holds(fd) && !state_->Begin(false)) return -1;
  return SystemCalls::FStat(fd, info);
}

int FaultyDisk::FAllocate(int fd, int64_t num_bytes) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->Holds(fd)) return SystemCalls::FAllocate(fd, num_bytes);
  if (!state_->Begin(true)) return -1;
  return state_->changes.FAllocate(fd, num_bytes);
}

int FaultyDisk::Stat(const std::string& path, struct stat* info) {
  const std::lock_guard lock(state_->mutex);
  if (state_->Holds(path) && !state_->Begin(false)) return -1;
  return SystemCalls::Stat(path, info);
}

int FaultyDisk::LStat(const std::string& path, struct stat* info) {
  const std::lock_guard lock(state_->mutex);
  if (state_->Holds(path) && !state_->Begin(false)) return -1;
  return SystemCalls::LStat(path, info);
}

int FaultyDisk::StatVfs(const std::string& path, struct statvfs* info) {
  const std::lock_guard lock(state_->mutex);
  if (state_->Holds(path) && !state_->Begin(false)) return -1;
  return SystemCalls::StatVfs(path, info);
}

int FaultyDisk::Rename(const std::string& from, const std::string& to,
                       unsigned flags) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->Holds(to)) return SystemCalls::Rename(from, to, flags);
  if (!state_->Begin(false)) return -1;
  return state_->changes.Rename(from, to, flags);
}

int FaultyDisk::Link(const std::string& from, const std::string& to) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->Holds(to)) return SystemCalls::Link(from, to);
  if (!state_->Begin(true) || SystemCalls::Link(from, to) != 0) return -1;
  state_->changes.RecordCreation(to);
  return 0;
}

int FaultyDisk::Unlink(const std::string& path) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->Holds(path)) return SystemCalls::Unlink(path);
  return state_->Begin(false) ? state_->changes.Unlink(path) : -1;
}

int FaultyDisk::MkDir(const std::string& path, mode_t mode) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->Holds(path)) return SystemCalls::MkDir(path, mode);
  if (!state_->Begin(true) || SystemCalls::MkDir(path, mode) != 0) return -1;
  state_->changes.RecordCreation(path);
  return 0;
}

int FaultyDisk::RmDir(const std::string& path) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->Holds(path)) return SystemCalls::RmDir(path);
  return state_->Begin(false) ? state_->changes.RmDir(path) : -1;
}

int FaultyDisk::List(const std::string& path, std::vector<std::string>& names) {
  const std::lock_guard lock(state_->mutex);
  if (state_->Holds(path) && !state_->Begin(false)) return -1;
  return SystemCalls::List(path, names);
}

}  // namespace shardshift::ckpt
