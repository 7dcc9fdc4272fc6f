// SPDX-License-Identifier: Apache-2.0
#include "tests/testutil/unsynced_changes.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

namespace shardshift::ckpt {
namespace {

constexpr int64_t kSectorBytes = 512;

// The scratch disk itself must not fail.
int Require(int64_t result, const char* what) {
  if (result < 0) {
    std::perror(what);
    std::abort();
  }
  return static_cast<int>(result);
}

int RenameAt(int from_fd, const std::string& from, int to_fd,
             const std::string& to, unsigned flags) {
  return static_cast<int>(::syscall(SYS_renameat2, from_fd, from.c_str(), to_fd,
                                    to.c_str(), flags));
}

std::pair<dev_t, ino_t> IdOf(int fd) {
  struct stat info;
  Require(::fstat(fd, &info), "fstat");
  return {info.st_dev, info.st_ino};
}

int64_t SizeOf(int fd) {
  struct stat info;
  Require(::fstat(fd, &info), "fstat");
  return info.st_size;
}

std::vector<std::byte> Read(int fd, int64_t offset_bytes, size_t num_bytes) {
  std::vector<std::byte> bytes(num_bytes);
  bytes.resize(static_cast<size_t>(
      Require(::pread(fd, bytes.data(), num_bytes, offset_bytes), "pread")));
  return bytes;
}

}  // namespace

UnsyncedChanges::UnsyncedChanges(std::string graveyard)
    : graveyard_(std::move(graveyard)) {
  Require(::mkdir(graveyard_.c_str(), 0777), graveyard_.c_str());
}

UnsyncedChanges::~UnsyncedChanges() {
  Forget();
  std::error_code ignored;
  std::filesystem::remove_all(graveyard_, ignored);
}

size_t UnsyncedChanges::Find(int fd) const {
  const auto [device, inode] = IdOf(fd);
  size_t i = 0;
  while (i < nodes_.size() &&
         (nodes_[i].inode != inode || nodes_[i].device != device)) {
    ++i;
  }
  return i;
}

size_t UnsyncedChanges::NodeOf(int fd) {
  const size_t index = Find(fd);
  if (index < nodes_.size()) {
    ::close(fd);
  } else {
    const auto [device, inode] = IdOf(fd);
    nodes_.push_back({.fd = fd, .device = device, .inode = inode});
  }
  return index;
}

UnsyncedChanges::Node& UnsyncedChanges::ChangingFile(int fd) {
  const std::string self = absl::StrCat("/proc/self/fd/", fd);
  Node& node = nodes_[NodeOf(
      Require(::open(self.c_str(), O_RDWR | O_CLOEXEC), self.c_str()))];
  if (node.is_synced) {
    node.is_synced = false;
    node.synced_bytes = SizeOf(node.fd);
  }
  return node;
}

UnsyncedChanges::Entry UnsyncedChanges::EntryOf(const std::string& path) {
  const std::string whole = path.substr(0, path.find_last_not_of('/') + 1);
  const size_t slash = whole.rfind('/');
  const std::string parent = whole.substr(0, slash + 1);
  const size_t node =
      NodeOf(Require(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                     parent.c_str()));
  return {node, nodes_[node].fd, whole.substr(slash + 1)};
}

std::string UnsyncedChanges::Grave() {
  return absl::StrCat(graveyard_, "/", num_graves_++);
}

ssize_t UnsyncedChanges::PWrite(int fd, const void* data, size_t num_bytes,
                                int64_t offset_bytes) {
  Node& node = ChangingFile(fd);
  std::vector<std::byte> before = Read(node.fd, offset_bytes, num_bytes);
  const ssize_t n = ::pwrite(fd, data, num_bytes, offset_bytes);
  if (n <= 0) return n;
  before.resize(std::min(before.size(), static_cast<size_t>(n)));
  const auto* const bytes = static_cast<const std::byte*>(data);
  node.writes.push_back({offset_bytes, std::move(before), {bytes, bytes + n}});
  return n;
}

int UnsyncedChanges::FAllocate(int fd, int64_t num_bytes) {
  ChangingFile(fd);
  return ::fallocate(fd, 0, 0, num_bytes);
}

void UnsyncedChanges::RecordCreation(const std::string& path) {
  const Entry entry = EntryOf(path);
  entries_.push_back({entry.directory, [this, entry] {
                        const int result =
                            RenameAt(entry.directory_fd, entry.name, AT_FDCWD,
                                     Grave(), 0);
                        // A durable rename may have taken it elsewhere.
                        if (errno != ENOENT) Require(result, "undo a creation");
                      }});
}

int UnsyncedChanges::Bury(const std::string& path) {
  const std::string grave = Grave();
  if (::rename(path.c_str(), grave.c_str()) != 0) return -1;
  const Entry entry = EntryOf(path);
  entries_.push_back(
      {entry.directory, [entry, grave] {
         Require(RenameAt(AT_FDCWD, grave, entry.directory_fd, entry.name, 0),
                 "undo a removal");
       }});
  return 0;
}

int UnsyncedChanges::Unlink(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return -1;
  if (!S_ISDIR(info.st_mode)) return Bury(path);
  errno = EISDIR;
  return -1;
}

int UnsyncedChanges::RmDir(const std::string& path) {
  std::error_code error;
  const bool is_empty = std::filesystem::is_empty(path, error);
  if (!error && is_empty) return Bury(path);
  errno = error ? error.value() : ENOTEMPTY;
  return -1;
}

int UnsyncedChanges::Rename(const std::string& from, const std::string& to,
                            unsigned flags) {
  struct stat info;
  const bool replaces = flags == 0 && ::lstat(to.c_str(), &info) == 0;
  if (replaces && S_ISDIR(info.st_mode)) {
    errno = EEXIST;
    return -1;
  }
  // A second name keeps what is replaced.
  const std::string grave = replaces ? Grave() : "";
  if (replaces) Require(::link(to.c_str(), grave.c_str()), "link");
  if (RenameAt(AT_FDCWD, from, AT_FDCWD, to, flags) != 0) return -1;
  const Entry old_entry = EntryOf(from);
  const Entry new_entry = EntryOf(to);
  const unsigned undo_flags = flags & RENAME_EXCHANGE;
  entries_.push_back(
      {new_entry.directory, [old_entry, new_entry, undo_flags, grave] {
         Require(RenameAt(new_entry.directory_fd, new_entry.name,
                          old_entry.directory_fd, old_entry.name, undo_flags),
                 "undo a rename");
         if (grave.empty()) return;
         Require(RenameAt(AT_FDCWD, grave, new_entry.directory_fd,
                          new_entry.name, 0),
                 "undo a replacement");
       }});
  return 0;
}

void UnsyncedChanges::RecordSync(int fd) {
  const size_t index = Find(fd);
  if (index == nodes_.size()) return;
  std::erase_if(entries_, [&](const EntryChange& change) {
    return change.directory == index;
  });
  nodes_[index].is_synced = true;
  nodes_[index].writes.clear();
}

void UnsyncedChanges::UndoWrites(const Node& node) {
  if (node.is_synced) return;
  for (auto write = node.writes.rbegin(); write != node.writes.rend();
       ++write) {
    Require(::pwrite(node.fd, write->before.data(), write->before.size(),
                     write->offset_bytes),
            "undo a write");
  }
  Require(::ftruncate(node.fd, node.synced_bytes), "ftruncate");
}

void UnsyncedChanges::RedoSome(const Node& node, std::mt19937_64& random) {
  if (node.is_synced) return;
  const int64_t grown_bytes = SizeOf(node.fd) - node.synced_bytes;
  UndoWrites(node);
  int64_t size = node.synced_bytes;
  switch (random() % 3) {
    case 0:
      break;
    case 1:
      size += grown_bytes;
      break;
    default:
      size += std::uniform_int_distribution<int64_t>(0, grown_bytes)(random);
  }
  Require(::ftruncate(node.fd, size), "ftruncate");
  for (const Write& write : node.writes) {
    std::vector<std::byte> image =
        Read(node.fd, write.offset_bytes, write.after.size());
    // Sectors of the disk, not of the write.
    bool is_kept = random() % 2 == 0;
    for (size_t i = 0; i < image.size(); ++i) {
      const int64_t offset_bytes = write.offset_bytes + static_cast<int64_t>(i);
      if (offset_bytes % kSectorBytes == 0) is_kept = random() % 2 == 0;
      if (is_kept) image[i] = write.after[i];
    }
    Require(::pwrite(node.fd, image.data(), image.size(), write.offset_bytes),
            "redo a write");
  }
}

void UnsyncedChanges::UndoEntries(size_t num_kept) {
  for (; entries_.size() > num_kept; entries_.pop_back()) {
    entries_.back().undo();
  }
}

void UnsyncedChanges::LoseAll() {
  for (const Node& node : nodes_) UndoWrites(node);
  UndoEntries(0);
  Forget();
}

void UnsyncedChanges::LoseSome(uint64_t seed) {
  std::mt19937_64 random(seed);
  for (const Node& node : nodes_) RedoSome(node, random);
  UndoEntries(random() % (entries_.size() + 1));
  Forget();
}

void UnsyncedChanges::Forget() {
  entries_.clear();
  for (const Node& node : nodes_) ::close(node.fd);
  nodes_.clear();
}

}  // namespace shardshift::ckpt
