// SPDX-License-Identifier: Apache-2.0
#include "tests/testutil/faulty_disk.h"

#include <cerrno>
#include <functional>
#include <map>
#include <set>

#include "ckpt/core/coding.h"
#include "ckpt/io/file.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Ne;
using Loss = FaultyDisk::Loss;

// A directory on a FaultyDisk, with a file "old" of text "old".
class FaultyDiskTest : public ::testing::Test {
 protected:
  FaultyDiskTest() { WriteFile(Path("old"), "old"); }

  std::string Path(absl::string_view name) const {
    return JoinPath(dir_.path(), name);
  }
  static void Put(const std::string& path, absl::string_view text, bool sync) {
    ASSERT_OK_AND_ASSIGN(const File file, File::Create(path));
    ASSERT_OK(file.WriteAt(0, AsBytes(text)));
    if (sync) {
      ASSERT_OK(file.Sync());
    }
  }
  std::vector<std::string> Names() const {
    return ListDirectory(dir_.path()).value();
  }
  void LoseAll() { disk_.LoseUnsyncedData(Loss::kAll, 0); }

  const TempDir dir_;
  FaultyDisk disk_{dir_.path()};
  const ScopedSystemCalls scope_{disk_};
};

TEST_F(FaultyDiskTest, LosesWhatWasWrittenWithoutASync) {
  ASSERT_OK_AND_ASSIGN(const File file, File::OpenForUpdate(Path("old")));
  ASSERT_OK(file.WriteAt(1, AsBytes("new")));
  ASSERT_OK(file.Sync());
  ASSERT_OK(file.WriteAt(0, AsBytes("lost")));
  ASSERT_OK(file.WriteAt(2, AsBytes("LOST")));
  ASSERT_OK(file.Allocate(100));
  EXPECT_EQ(ReadFile(Path("old")).substr(0, 7), std::string("loLOST\0", 7));
  LoseAll();
  EXPECT_EQ(ReadFile(Path("old")), "onew");
}

TEST_F(FaultyDiskTest, LosesANewNameWithoutASyncOfItsDirectory) {
  Put(Path("a"), "a", true);
  ASSERT_OK(SyncDirectory(dir_.path()));
  Put(Path("b"), "b", true);
  ASSERT_OK(LinkFile(Path("a"), Path("c")));
  LoseAll();
  EXPECT_THAT(Names(), ElementsAre("a", "old"));
}

TEST_F(FaultyDiskTest, KeepsANameWithoutItsDataWhenOnlyTheDirectoryIsSynced) {
  Put(Path("a"), "a", false);
  ASSERT_OK(SyncDirectory(dir_.path()));
  LoseAll();
  EXPECT_EQ(ReadFile(Path("a")), "");
}

TEST_F(FaultyDiskTest, UndoesARenameAndBringsBackWhatItReplaced) {
  Put(Path("new"), "new", true);
  ASSERT_OK(SyncDirectory(dir_.path()));
  ASSERT_OK(Rename(Path("new"), Path("old")));
  EXPECT_EQ(ReadFile(Path("old")), "new");
  LoseAll();
  EXPECT_EQ(ReadFile(Path("old")), "old");
  EXPECT_EQ(ReadFile(Path("new")), "new");
}

TEST_F(FaultyDiskTest, KeepsARenameWhenTheDirectoryIsSynced) {
  Put(Path("new"), "new", true);
  ASSERT_OK(Rename(Path("new"), Path("old")));
  ASSERT_OK(SyncDirectory(dir_.path()));
  LoseAll();
  EXPECT_THAT(Names(), ElementsAre("old"));
  EXPECT_EQ(ReadFile(Path("old")), "new");
}

TEST_F(FaultyDiskTest, UndoesAnExchange) {
  Put(Path("new"), "new", true);
  ASSERT_OK(SyncDirectory(dir_.path()));
  ASSERT_OK(Exchange(Path("new"), Path("old")));
  EXPECT_EQ(ReadFile(Path("old")), "new");
  LoseAll();
  EXPECT_EQ(ReadFile(Path("old")), "old");
}

TEST_F(FaultyDiskTest, BringsBackARemovedTreeWithAllInIt) {
  ASSERT_OK(MakeDirectories(Path("tree/sub")));
  Put(Path("tree/sub/file"), "deep", true);
  ASSERT_OK(SyncDirectory(Path("tree/sub")));
  ASSERT_OK(RemoveTree(Path("tree")));
  EXPECT_THAT(Names(), ElementsAre("old"));
  LoseAll();
  EXPECT_EQ(ReadFile(Path("tree/sub/file")), "deep");
}

TEST_F(FaultyDiskTest, RemovesForGoodWhenTheDirectoryIsSynced) {
  ASSERT_OK(RemoveTree(Path("old")));
  ASSERT_OK(SyncDirectory(dir_.path()));
  LoseAll();
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(FaultyDiskTest, LosesAnEntryOfADirectoryThatWasRenamedDurably) {
  ASSERT_OK(MakeDirectories(Path("partial")));
  Put(Path("partial/file"), "x", true);
  ASSERT_OK(Rename(Path("partial"), Path("whole")));
  ASSERT_OK(SyncDirectory(dir_.path()));
  LoseAll();
  EXPECT_THAT(Names(), ElementsAre("old", "whole"));
  EXPECT_THAT(ListDirectory(Path("whole")).value(), IsEmpty());
}

TEST_F(FaultyDiskTest, LosesSectorsAndSizeByTheCoinsOfTheSeed) {
  const std::string text(4 * 512, 'n');
  std::map<std::string, int> seen;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    {
      ASSERT_OK(RemoveTree(Path("f")));
      Put(Path("f"), std::string(2 * 512, 'o'), true);
      ASSERT_OK(SyncDirectory(dir_.path()));
      ASSERT_OK_AND_ASSIGN(const File file, File::OpenForUpdate(Path("f")));
      ASSERT_OK(file.WriteAt(0, AsBytes(text)));
    }
    disk_.LoseUnsyncedData(Loss::kSome, seed);
    const std::string left = ReadFile(Path("f"));
    ASSERT_GE(left.size(), 2u * 512);
    std::string sectors;
    for (size_t i = 0; i + 512 <= left.size(); i += 512) {
      EXPECT_EQ(left.substr(i, 512), std::string(512, left[i]));
      sectors += left[i] == '\0' ? '0' : left[i];
    }
    ++seen[sectors];
  }
  for (const char* sectors :
       {"oo", "on", "no", "nn", "nn0", "oonn", "nnnn", "oo00", "no0n"}) {
    EXPECT_GT(seen[sectors], 0) << sectors;
  }
  EXPECT_EQ(seen["ono"], 0) << "old bytes beyond the old end";
}

TEST_F(FaultyDiskTest, KeepsTheFirstSoManyChangesOfDirectories) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    for (const char* name : {"a", "b", "c"}) Put(Path(name), name, true);
    disk_.LoseUnsyncedData(Loss::kSome, seed);
    std::string left;
    for (const std::string& name : Names()) left += name;
    seen.insert(left);
    for (const char* name : {"a", "b", "c"}) ASSERT_OK(RemoveTree(Path(name)));
    ASSERT_OK(SyncDirectory(dir_.path()));
  }
  EXPECT_THAT(seen, ElementsAre("abcold", "abold", "aold", "old"));
}

TEST_F(FaultyDiskTest, FailsTheChosenOperationOnly) {
  disk_.FailAt(disk_.num_operations() + 2, EIO);
  EXPECT_OK(File::OpenForRead(Path("old")));  // Two calls.
  EXPECT_FALSE(disk_.has_struck());
  EXPECT_THAT(
      File::OpenForRead(Path("old")),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("cannot open")));
  EXPECT_TRUE(disk_.has_struck());
  EXPECT_OK(File::OpenForRead(Path("old")));
}

TEST_F(FaultyDiskTest, SaysHowMuchRoomAFullDiskLacks) {
  ASSERT_OK_AND_ASSIGN(const File file, File::OpenForUpdate(Path("old")));
  disk_.FillAt(disk_.num_operations());
  EXPECT_THAT(
      file.WriteAt(0, AsBytes("text")),
      StatusIs(absl::StatusCode::kResourceExhausted,
               AllOf(HasSubstr("needs 4 bytes, "), HasSubstr(" are free"))));
  EXPECT_THAT(
      file.Allocate(1 << 20),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("1048576")));
  EXPECT_FALSE(File::Create(Path("new")).ok());
  EXPECT_EQ(ReadWholeFile(Path("old")).value(), "old");
  EXPECT_OK(RemoveTree(Path("old")));
}

TEST_F(FaultyDiskTest, DoesNothingAfterACrash) {
  ASSERT_OK_AND_ASSIGN(const File file, File::OpenForUpdate(Path("old")));
  disk_.CrashAt(disk_.num_operations());
  EXPECT_FALSE(file.WriteAt(0, AsBytes("new")).ok());
  EXPECT_FALSE(file.Sync().ok());
  EXPECT_FALSE(RemoveTree(Path("old")).ok());
  LoseAll();
  EXPECT_EQ(ReadWholeFile(Path("old")).value(), "old");
}

TEST_F(FaultyDiskTest, LeavesOtherDirectoriesAlone) {
  const TempDir elsewhere;
  disk_.CrashAt(0);
  Put(JoinPath(elsewhere.path(), "f"), "x", true);
  LoseAll();
  EXPECT_EQ(ReadFile(JoinPath(elsewhere.path(), "f")), "x");
  EXPECT_EQ(disk_.num_operations(), 0);
}

// The texts that "f" may hold when the power fails at any operation of
// `replace`, which turns "old" into "new".
std::set<std::string> TextsAfterCrashes(
    const std::function<absl::Status(const std::string&)>& replace) {
  std::set<std::string> texts;
  for (int64_t n = 0, end = 1; n <= end; ++n) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const TempDir dir;
      const std::string path = JoinPath(dir.path(), "f");
      WriteFile(path, "old");
      FaultyDisk disk(dir.path());
      disk.CrashAt(n);
      {
        const ScopedSystemCalls scope(disk);
        const absl::Status status = replace(path);
        EXPECT_NE(status.ok(), disk.has_struck());
      }
      end = disk.has_struck() ? n + 1 : n;
      disk.LoseUnsyncedData(seed == 0 ? Loss::kAll : Loss::kSome, seed);
      texts.insert(ReadFile(path));
    }
  }
  return texts;
}

TEST(CrashSweep, FindsTheOldOrTheNewTextAfterReplaceFile) {
  EXPECT_THAT(TextsAfterCrashes([](const std::string& path) {
                return ReplaceFile(path, "new");
              }),
              ElementsAre("new", "old"));
}

TEST(CrashSweep, CatchesARenameBeforeTheSync) {
  EXPECT_THAT(TextsAfterCrashes([](const std::string& path) {
                absl::StatusOr<File> file = File::Create(path + ".new");
                if (!file.ok()) return file.status();
                absl::Status status = file->WriteAt(0, AsBytes("new"));
                if (status.ok()) status = Rename(path + ".new", path);
                return status;
              }),
              Contains(AllOf(Ne("old"), Ne("new"))));
}

}  // namespace
}  // namespace shardshift::ckpt
