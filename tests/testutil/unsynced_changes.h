// Changes of real files and directories that can be lost until they are
// synced.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_TESTUTIL_UNSYNCED_CHANGES_H_
#define SHARDSHIFT_TESTS_TESTUTIL_UNSYNCED_CHANGES_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace shardshift::ckpt {

// Makes changes and remembers how to undo them; a sync forgets that. Calls
// return and set errno as the kernel's of the same names do. Not thread-safe.
class UnsyncedChanges {
 public:
  // What is removed goes to `graveyard`, a new directory on the same file
  // system that the destructor removes.
  explicit UnsyncedChanges(std::string graveyard);
  ~UnsyncedChanges();
  UnsyncedChanges(const UnsyncedChanges&) = delete;
  UnsyncedChanges& operator=(const UnsyncedChanges&) = delete;

  ssize_t PWrite(int fd, const void* data, size_t num_bytes,
                 int64_t offset_bytes);
  int FAllocate(int fd, int64_t num_bytes);
  int Rename(const std::string& from, const std::string& to, unsigned flags);
  int Unlink(const std::string& path);
  int RmDir(const std::string& path);
  // After something was made at `path`.
  void RecordCreation(const std::string& path);

  // What was changed in the file or directory is durable.
  void RecordSync(int fd);

  // Undoes everything that is not.
  void LoseAll();
  // Undoes some of it, by coins of `seed`: of writes, each sector of 512 bytes
  // apart; of a file's growth, none, all or a part; of the changes of
  // directories, the last so many.
  void LoseSome(uint64_t seed);

 private:
  struct Write {
    int64_t offset_bytes;
    // Shorter than `after` where the file ended.
    std::vector<std::byte> before;
    std::vector<std::byte> after;
  };
  // A file or directory that was changed. Its fd keeps the inode, under
  // whatever name and even without one.
  struct Node {
    int fd;
    dev_t device;
    ino_t inode;
    bool is_synced = true;
    // These two of the time since.
    int64_t synced_bytes = 0;
    std::vector<Write> writes = {};
  };
  struct EntryChange {
    // Its sync makes the change durable.
    size_t directory;
    std::function<void()> undo;
  };
  // The entry that a path names.
  struct Entry {
    size_t directory;
    int directory_fd;
    std::string name;
  };

  // The number of nodes if there is none.
  size_t Find(int fd) const;
  // Takes `fd` or, if it knows the inode, closes it.
  size_t NodeOf(int fd);
  // The node of an open file, about to change.
  Node& ChangingFile(int fd);
  Entry EntryOf(const std::string& path);
  // A fresh path in the graveyard.
  std::string Grave();
  int Bury(const std::string& path);
  void UndoWrites(const Node& node);
  void RedoSome(const Node& node, std::mt19937_64& random);
  void UndoEntries(size_t num_kept);
  void Forget();

  std::string graveyard_;
  int64_t num_graves_ = 0;
  // In order of their first change, so that a seed means the same each time.
  std::vector<Node> nodes_;
  std::vector<EntryChange> entries_;
};

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_TESTS_TESTUTIL_UNSYNCED_CHANGES_H_
