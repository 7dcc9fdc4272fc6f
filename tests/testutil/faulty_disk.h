// A disk that fails, fills up, or loses power, at a chosen operation.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_TESTUTIL_FAULTY_DISK_H_
#define SHARDSHIFT_TESTS_TESTUTIL_FAULTY_DISK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/io/system_calls.h"

namespace shardshift::ckpt {

// System calls on the real files below a scratch directory; those elsewhere
// pass through. It counts the operations: all calls but Close, from 0. Syncs
// reach no device; instead it remembers what they have not yet covered, for
// LoseUnsyncedData. Thread-safe.
//
//   FaultyDisk disk(dir);
//   disk.CrashAt(n);
//   { ScopedSystemCalls scope(disk); Save(dir); }
//   disk.LoseUnsyncedData(FaultyDisk::Loss::kAll, 0);
//   EXPECT_OK(Load(dir));
class FaultyDisk : public SystemCalls {
 public:
  // `root`: an absolute path of a directory. What is there is durable. A
  // directory root + ".lost" is used beside it, and removed at the end.
  explicit FaultyDisk(std::string root);
  ~FaultyDisk() override;

  int64_t num_operations() const;

  // One of these at most; it takes the place of an earlier one.
  // The operation does nothing and fails.
  void FailAt(int64_t operation, int error);
  // If it is a read or a write, it ends half way, at an odd byte; if `error`
  // is not 0, the next operation fails with it.
  void ShortenAt(int64_t operation, int error);
  // From this operation on the disk is full: what needs room fails with
  // ENOSPC; reading, removing and renaming still work.
  void FillAt(int64_t operation);
  // From this operation on all calls do nothing and fail.
  void CrashAt(int64_t operation);
  // Whether the operation of the fault has come.
  bool has_struck() const;

  enum class Loss {
    // Files are as of their last sync; creations, removals and renames since
    // the last sync of their directory (for a rename, that of the new name)
    // are undone.
    kAll,
    // By coins of `seed`: of the writes since, each sector of 512 bytes is
    // kept or not, and the file's size is that of the sync, or has grown,
    // with zeros for what is lost; the first so many changes of directories
    // are kept.
    kSome,
  };
  // What the disk holds when power returns. Ends the fault, too: the disk
  // works again, and what is there is durable. Call with no call under way.
  void LoseUnsyncedData(Loss loss, uint64_t seed);

  int Open(const std::string& path, int flags, mode_t mode) override;
  int Close(int fd) override;
  ssize_t PRead(int fd, void* data, size_t num_bytes,
                int64_t offset_bytes) override;
  ssize_t PWrite(int fd, const void* data, size_t num_bytes,
                 int64_t offset_bytes) override;
  int FSync(int fd) override;
  int FStat(int fd, struct stat* info) override;
  int FAllocate(int fd, int64_t num_bytes) override;
  int Stat(const std::string& path, struct stat* info) override;
  int LStat(const std::string& path, struct stat* info) override;
  int StatVfs(const std::string& path, struct statvfs* info) override;
  int Rename(const std::string& from, const std::string& to,
             unsigned flags) override;
  int Link(const std::string& from, const std::string& to) override;
  int Unlink(const std::string& path) override;
  int MkDir(const std::string& path, mode_t mode) override;
  int RmDir(const std::string& path) override;
  int List(const std::string& path, std::vector<std::string>& names) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_TESTS_TESTUTIL_FAULTY_DISK_H_
