// SPDX-License-Identifier: Apache-2.0
#include "ckpt/io/file.h"

#include <unistd.h>

#include <cerrno>
#include <limits>

#include "ckpt/core/coding.h"
#include "ckpt/io/system_calls.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(File, ErrorsNameOperationPathAndReason) {
  const TempDir dir;
  const std::string path = JoinPath(dir.path(), "none");
  EXPECT_THAT(File::OpenForRead(path),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("cannot open " + path + ": No such file")));
}

TEST(File, ReadsBackWhatIsWrittenAtAnOffset) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const File file,
                       File::Create(JoinPath(dir.path(), "f")));
  ASSERT_OK(file.WriteAt(5, AsBytes("hello")));
  EXPECT_EQ(file.Size().value(), 10);
  std::vector<std::byte> bytes(3);
  ASSERT_OK(file.ReadAt(6, bytes));
  EXPECT_TRUE(std::ranges::equal(bytes, AsBytes("ell")));
  EXPECT_THAT(file.ReadAt(8, bytes), StatusIs(absl::StatusCode::kDataLoss,
                                              HasSubstr("1 bytes early")));
}

TEST(File, LiesInMemoryAlone) {
  ASSERT_OK_AND_ASSIGN(const File file,
                       File::InMemory("no such path", AsBytes("hello")));
  EXPECT_EQ(file.Size().value(), 5);
  std::vector<std::byte> bytes(3);
  ASSERT_OK(file.ReadAt(1, bytes));
  EXPECT_TRUE(std::ranges::equal(bytes, AsBytes("ell")));
  EXPECT_THAT(file.ReadAt(3, bytes), StatusIs(absl::StatusCode::kDataLoss,
                                              HasSubstr("no such path ends")));
}

// Has no memory for files.
class WithoutMemory : public SystemCalls {
 public:
  int MemoryFile() override {
    errno = ENFILE;
    return -1;
  }
};

TEST(File, WithoutMemoryIsRefused) {
  WithoutMemory calls;
  const ScopedSystemCalls scoped(calls);
  EXPECT_THAT(
      File::InMemory("filled in", AsBytes("hello")),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("filled in")));
}

TEST(File, CreateRefusesAnExistingFile) {
  const TempDir dir;
  const std::string path = JoinPath(dir.path(), "f");
  WriteFile(path, "old");
  EXPECT_THAT(File::Create(path),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(path)));
  EXPECT_EQ(ReadFile(path), "old");
}

TEST(File, ReportsAFullDisk) {
  ASSERT_OK_AND_ASSIGN(const File full, File::OpenForUpdate("/dev/full"));
  EXPECT_THAT(full.WriteAt(0, AsBytes("x")),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("No space left")));
}

// Knows no fallocate, as NFS of old.
class WithoutAllocate : public SystemCalls {
 public:
  int FAllocate(int, int64_t) override {
    errno = EOPNOTSUPP;
    return -1;
  }
};

TEST(Allocate, GrowsTheFileAndKeepsWhatIsThere) {
  for (const bool has_allocate : {true, false}) {
    const TempDir dir;
    const std::string path = JoinPath(dir.path(), "f");
    SystemCalls kernel;
    WithoutAllocate old_kernel;
    const ScopedSystemCalls scope(has_allocate ? kernel : old_kernel);
    ASSERT_OK_AND_ASSIGN(const File file, File::Create(path));
    ASSERT_OK(file.WriteAt(0, AsBytes("hello")));
    ASSERT_OK(file.Allocate(3));
    EXPECT_EQ(ReadFile(path), "hello");
    ASSERT_OK(file.Allocate(7));
    EXPECT_EQ(ReadFile(path), std::string("hello\0\0", 7));
  }
}

TEST(LinkFile, GivesASecondNameAndReplacesNothing) {
  const TempDir dir;
  const std::string a = JoinPath(dir.path(), "a");
  const std::string b = JoinPath(dir.path(), "b");
  WriteFile(a, "text");
  ASSERT_OK(LinkFile(a, b));
  EXPECT_THAT(LinkFile(a, b), StatusIs(absl::StatusCode::kAlreadyExists,
                                       HasSubstr("cannot link " + a)));
  ASSERT_OK(RemoveTree(a));
  EXPECT_EQ(ReadFile(b), "text");
}

TEST(FreeBytes, IsKnownForADirectoryAndNotForNone) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const int64_t free_bytes, FreeBytes(dir.path()));
  EXPECT_GT(free_bytes, 0);
  EXPECT_THAT(FreeBytes(JoinPath(dir.path(), "none")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

TEST(FreeBytes, HasNoLimitWhereNoBlocksAreCounted) {
  class Uncounted : public SystemCalls {
   public:
    int StatVfs(const std::string&, struct statvfs* info) override {
      *info = {};
      return 0;
    }
  };
  Uncounted calls;
  const ScopedSystemCalls scope(calls);
  EXPECT_EQ(FreeBytes("any").value(), std::numeric_limits<int64_t>::max());
}

TEST(MakeDirectories, MakesWhatIsMissingAndAcceptsWhatIsThere) {
  const TempDir dir;
  const std::string path = JoinPath(dir.path(), "a/b/c");
  EXPECT_OK(MakeDirectories(path));
  EXPECT_OK(MakeDirectories(path + "/"));
  EXPECT_TRUE(Exists(path).value());
  WriteFile(JoinPath(path, "file"), "");
  EXPECT_FALSE(MakeDirectories(JoinPath(path, "file")).ok());
}

TEST(ListDirectory, IsSorted) {
  const TempDir dir;
  for (const char* name : {"b", "c", "a"}) {
    WriteFile(JoinPath(dir.path(), name), "");
  }
  EXPECT_THAT(ListDirectory(dir.path()).value(), ElementsAre("a", "b", "c"));
}

TEST(LockDirectory, KeepsAnExclusiveLockApartFromAllOthers) {
  const TempDir dir;
  {
    ASSERT_OK_AND_ASSIGN(const File one,
                         LockDirectory(dir.path(), Lock::kShared));
    EXPECT_OK(LockDirectory(dir.path(), Lock::kShared).status());
    EXPECT_THAT(LockDirectory(dir.path(), Lock::kExclusive),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr(dir.path() + " is in use")));
  }
  ASSERT_OK_AND_ASSIGN(const File one,
                       LockDirectory(dir.path(), Lock::kExclusive));
  EXPECT_THAT(
      LockDirectory(dir.path(), Lock::kShared),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("in use")));
}

class NoLockCalls : public SystemCalls {
 public:
  explicit NoLockCalls(int error) : error_(error) {}
  int FLock(int, int) override {
    errno = error_;
    return -1;
  }

 private:
  int error_;
};

// B140: network file systems may have no locks.
TEST(LockDirectory, GoesOnWhereTheFileSystemHasNoLocks) {
  const TempDir dir;
  for (const int error : {ENOLCK, EOPNOTSUPP, ENOSYS, EINVAL, EBADF}) {
    NoLockCalls calls(error);
    const ScopedSystemCalls scope(calls);
    EXPECT_OK(LockDirectory(dir.path(), Lock::kShared).status()) << error;
    EXPECT_OK(LockDirectory(dir.path(), Lock::kExclusive).status()) << error;
  }
  NoLockCalls calls(EIO);
  const ScopedSystemCalls scope(calls);
  EXPECT_THAT(LockDirectory(dir.path(), Lock::kShared),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("cannot lock " + dir.path())));
}

TEST(RemoveTree, DoesNotFollowLinks) {
  const TempDir dir;
  const std::string kept = JoinPath(dir.path(), "kept");
  const std::string tree = JoinPath(dir.path(), "tree");
  ASSERT_OK(MakeDirectories(JoinPath(tree, "sub")));
  ASSERT_OK(MakeDirectories(kept));
  WriteFile(JoinPath(kept, "file"), "x");
  ASSERT_EQ(::symlink(kept.c_str(), JoinPath(tree, "link").c_str()), 0);
  EXPECT_OK(RemoveTree(tree));
  EXPECT_FALSE(Exists(tree).value());
  EXPECT_EQ(ReadFile(JoinPath(kept, "file")), "x");
  EXPECT_OK(RemoveTree(tree));
}

TEST(RenameNoReplace, RefusesEvenAnEmptyDirectory) {
  const TempDir dir;
  const std::string a = JoinPath(dir.path(), "a");
  const std::string b = JoinPath(dir.path(), "b");
  ASSERT_OK(MakeDirectories(a));
  ASSERT_OK(MakeDirectories(b));
  EXPECT_THAT(RenameNoReplace(a, b),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(b)));
  ASSERT_OK(RemoveTree(b));
  EXPECT_OK(RenameNoReplace(a, b));
}

TEST(Exchange, SwapsTwoDirectories) {
  const TempDir dir;
  const std::string a = JoinPath(dir.path(), "a");
  const std::string b = JoinPath(dir.path(), "b");
  ASSERT_OK(MakeDirectories(a));
  ASSERT_OK(MakeDirectories(b));
  WriteFile(JoinPath(a, "from-a"), "");
  ASSERT_OK(Exchange(a, b));
  EXPECT_TRUE(Exists(JoinPath(b, "from-a")).value());
  EXPECT_FALSE(Exists(JoinPath(a, "from-a")).value());
}

TEST(ReplaceFile, LeavesTheNewTextAlone) {
  const TempDir dir;
  const std::string path = JoinPath(dir.path(), "latest");
  ASSERT_OK(ReplaceFile(path, "one\n"));
  ASSERT_OK(ReplaceFile(path, "two\n"));
  EXPECT_EQ(ReadWholeFile(path).value(), "two\n");
  EXPECT_THAT(ListDirectory(dir.path()).value(), ElementsAre("latest"));
}

}  // namespace
}  // namespace shardshift::ckpt
