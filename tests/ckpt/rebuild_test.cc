// Making an index anew from the parts.
// SPDX-License-Identifier: Apache-2.0
#include "ckpt/rebuild.h"

#include <cerrno>
#include <filesystem>
#include <memory>
#include <random>

#include "ckpt/io/file.h"
#include "ckpt/io/system_calls.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "ckpt/verify.h"
#include "ckpt/writer.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/faulty_disk.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
constexpr auto kFailedPrecondition = absl::StatusCode::kFailedPrecondition;

// A run with step 1.
class Rebuild : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(WriteSample(dir_.path(), 1, SmallTensors()));
    step_dir_ = JoinPath(dir_.path(), StepName(1));
    index_ = JoinPath(step_dir_, kIndexFileName);
    whole_ = ReadFile(index_);
  }

  std::string PartPath(int64_t part) const {
    return JoinPath(step_dir_, PartFileName(part));
  }
  // The text, once in the index, with another in its place.
  void ReplaceInIndex(const std::string& from, const std::string& to) const {
    std::string bytes = ReadFile(index_);
    const size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos);
    bytes.replace(at, from.size(), to);
    WriteFile(index_, bytes);
  }
  // A refusal that leaves all as it is.
  void ExpectRefusal(absl::StatusCode code, const std::string& says) const {
    const std::string before = ReadFile(index_);
    EXPECT_THAT(RebuildIndex(step_dir_), StatusIs(code, HasSubstr(says)));
    EXPECT_EQ(ReadFile(index_), before);
    EXPECT_FALSE(Exists(JoinPath(step_dir_, kPartialIndexFileName)).value());
  }

  TempDir dir_;
  std::string step_dir_;
  std::string index_;
  std::string whole_;
};

TEST_F(Rebuild, GivesTheBytesOfTheIndexWhenItsRecordIsKnown) {
  // A byte that only HDF5 looks at.
  ReplaceInIndex("/fragments/", "/fragmentz/");
  ASSERT_OK_AND_ASSIGN(const RebuildReport report, RebuildIndex(step_dir_));
  EXPECT_TRUE(report.knows_record);
  EXPECT_EQ(report.step, 1);
  EXPECT_EQ(report.num_tensors, 3);
  EXPECT_EQ(report.num_fragments, 4);
  EXPECT_EQ(report.num_parts, 2);
  EXPECT_EQ(ReadFile(index_), whole_);
}

// The same from parts alone, for random tensors, against an index that was
// written with that record.
TEST(RebuildRandom, GivesTheBytesOfAnIndexOfTheEmptyRecord) {
  for (unsigned seed = 0; seed < 3; ++seed) {
    std::mt19937 random(seed);
    const TempDir dir;
    const std::vector<SampleTensor> tensors = RandomTensors(4, random);
    ASSERT_OK_AND_ASSIGN(const std::string partial,
                         BeginCheckpoint(dir.path(), 7));
    const CheckpointId id = {7, R"({"a":1})"};
    ASSERT_OK_AND_ASSIGN(const std::vector<PartReceipt> receipts,
                         WriteSampleParts(partial, id, tensors));
    ASSERT_OK(CommitCheckpoint(dir.path(), id, receipts, "{}", false));
    const std::string step_dir = JoinPath(dir.path(), StepName(7));
    const std::string index = JoinPath(step_dir, kIndexFileName);
    const std::string whole = ReadFile(index);
    ASSERT_OK(RemoveTree(index));
    ASSERT_OK_AND_ASSIGN(const RebuildReport report, RebuildIndex(step_dir));
    EXPECT_FALSE(report.knows_record);
    EXPECT_EQ(ReadFile(index), whole) << "seed " << seed;
  }
}

TEST_F(Rebuild, MakesTheStepOpenAgain) {
  ASSERT_OK(RemoveTree(index_));
  WriteFile(JoinPath(step_dir_, kPartialIndexFileName), "of a killed rebuild");
  ASSERT_OK(RebuildIndex(step_dir_).status());
  ASSERT_OK_AND_ASSIGN(const auto reader, Reader::Open(step_dir_));
  EXPECT_EQ(reader->record(), "{}");
  EXPECT_EQ(reader->state(), R"({"step":1})");
  const auto on_fault = [](const Fault& fault) {
    ADD_FAILURE() << fault.message;
  };
  EXPECT_OK(Verify(step_dir_, true, on_fault).status());
  EXPECT_THAT(ListDirectory(step_dir_).value(),
              ElementsAre("index.h5", "part-00000.h5", "part-00001.h5"));
}

TEST_F(Rebuild, DoesNotTouchAWholeIndexUnlessAsked) {
  ExpectRefusal(kFailedPrecondition, "index.h5 is whole");
  ASSERT_OK_AND_ASSIGN(const RebuildReport report,
                       RebuildIndex(step_dir_, {.replaces_whole_index = true}));
  EXPECT_TRUE(report.knows_record);
  EXPECT_EQ(ReadFile(index_), whole_);
}

// Its record would be lost, though nothing is wrong with it.
TEST_F(Rebuild, DoesNotReplaceAnIndexThatItMayNotRead) {
  class Forbidding : public SystemCalls {
   public:
    int Open(const std::string& path, int flags, mode_t mode) override {
      if (!path.ends_with(kIndexFileName)) {
        return SystemCalls::Open(path, flags, mode);
      }
      errno = EACCES;
      return -1;
    }
  };
  Forbidding calls;
  const ScopedSystemCalls scope(calls);
  ExpectRefusal(absl::StatusCode::kPermissionDenied, index_);
}

TEST_F(Rebuild, LeavesADirectoryInTheWay) {
  ASSERT_OK(RemoveTree(index_));
  const std::string partial = JoinPath(step_dir_, kPartialIndexFileName);
  ASSERT_OK(MakeDirectories(partial));
  EXPECT_THAT(RebuildIndex(step_dir_),
              StatusIs(kFailedPrecondition, HasSubstr(partial)));
  EXPECT_TRUE(Exists(partial).value());
}

TEST_F(Rebuild, LeavesTheViewsOutAboveTheLimit) {
  ASSERT_OK(RebuildIndex(step_dir_, {.replaces_whole_index = true,
                                     .max_viewed_fragments = 3})
                .status());
  EXPECT_EQ(ReadFile(index_).find("part-00000.h5"), std::string::npos);
  EXPECT_OK(Reader::Open(step_dir_).status());
  ASSERT_OK(RebuildIndex(step_dir_, {.replaces_whole_index = true,
                                     .max_viewed_fragments = 4})
                .status());
  EXPECT_EQ(ReadFile(index_), whole_);
}

TEST_F(Rebuild, DoesNotBelieveTheRecordOfAnotherCheckpoint) {
  const TempDir other;
  ASSERT_OK(WriteSample(other.path(), 1, SmallTensors(), false, "[2]"));
  WriteFile(index_, ReadFile(JoinPath(other.path(), "step-00000001/index.h5")));
  ASSERT_OK_AND_ASSIGN(const RebuildReport report,
                       RebuildIndex(step_dir_, {.replaces_whole_index = true}));
  EXPECT_FALSE(report.knows_record);
  EXPECT_EQ(Reader::Open(step_dir_).value()->state(), R"({"step":1})");
}

// B93, as the tests below.
TEST_F(Rebuild, RefusesAHoleByTensor) {
  ASSERT_OK(RemoveTree(PartPath(1)));
  WriteFile(index_, "lost");
  ExpectRefusal(kDataLoss, "tensor \"w\" (master): nothing holds");
}

TEST_F(Rebuild, RefusesAPartOfAnotherStep) {
  const TempDir other;
  ASSERT_OK(WriteSample(other.path(), 2, SmallTensors()));
  WriteFile(PartPath(1),
            ReadFile(other.path() + "/step-00000002/part-00001.h5"));
  WriteFile(index_, "lost");
  ExpectRefusal(kDataLoss, "part-00001.h5 is of step 2");
}

TEST_F(Rebuild, RefusesAPartOfAnotherState) {
  const TempDir other;
  ASSERT_OK(WriteSample(other.path(), 1, SmallTensors(), false, "[2]"));
  WriteFile(PartPath(1),
            ReadFile(other.path() + "/step-00000001/part-00001.h5"));
  WriteFile(index_, "lost");
  ExpectRefusal(kDataLoss, "part-00001.h5 has another state");
}

TEST_F(Rebuild, RefusesACopyOfAPart) {
  WriteFile(PartPath(5), ReadFile(PartPath(0)));
  WriteFile(index_, "lost");
  ExpectRefusal(kDataLoss, "part-00005.h5 is a copy of part-00000.h5");
}

TEST_F(Rebuild, RefusesAnOverlap) {
  const TempDir other;
  std::vector<SampleTensor> tensors = SmallTensors();
  tensors[0].pieces = {{5, {{0, 0}, {6, 8}}}};
  ASSERT_OK(WriteSample(other.path(), 1, tensors));
  WriteFile(PartPath(5),
            ReadFile(other.path() + "/step-00000001/part-00005.h5"));
  WriteFile(index_, "lost");
  ExpectRefusal(kDataLoss, "\"w\" (master): fragments overlap");
}

TEST_F(Rebuild, RefusesADamagedPart) {
  WriteFile(index_, "lost");
  const std::string part = ReadFile(PartPath(1));
  // The user block, HDF5's own bytes, and the end with the table.
  for (const size_t offset : {size_t{20}, size_t{4100}, part.size() - 1}) {
    std::string damaged = part;
    damaged[offset] = static_cast<char>(damaged[offset] ^ 1);
    WriteFile(PartPath(1), damaged);
    ExpectRefusal(kDataLoss, "part-00001.h5");
  }
  WriteFile(PartPath(1), part.substr(0, part.size() - 100));
  ExpectRefusal(kDataLoss, "part-00001.h5");
}

TEST_F(Rebuild, RefusesADirectoryNamedAfterAnotherStep) {
  const std::string renamed = JoinPath(dir_.path(), StepName(2));
  ASSERT_OK(Rename(step_dir_, renamed));
  ASSERT_OK(RemoveTree(JoinPath(renamed, kIndexFileName)));
  EXPECT_THAT(RebuildIndex(renamed),
              StatusIs(kDataLoss, HasSubstr("holds step 1; rename it")));
}

TEST_F(Rebuild, RefusesWhereThereIsNoPart) {
  EXPECT_THAT(RebuildIndex(dir_.path()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no part")));
}

TEST_F(Rebuild, WaitsForNoReader) {
  ASSERT_OK_AND_ASSIGN(const auto reader, Reader::Open(step_dir_));
  EXPECT_THAT(RebuildIndex(step_dir_, {.replaces_whole_index = true}),
              StatusIs(kFailedPrecondition, HasSubstr("in use")));
}

// At every operation: the old index or the new one, never half of one.
TEST_F(Rebuild, ReplacesTheIndexInOneStep) {
  bool is_done = false;
  int64_t n = 0;
  for (; !is_done; ++n) {
    ReplaceInIndex("/fragments/", "/fragmentz/");
    const std::string damaged = ReadFile(index_);
    FaultyDisk disk(dir_.path());
    disk.CrashAt(n);
    {
      const ScopedSystemCalls scope(disk);
      is_done = RebuildIndex(step_dir_).ok();
    }
    EXPECT_TRUE(is_done || disk.has_struck());
    disk.LoseUnsyncedData(FaultyDisk::Loss::kSome, n);
    const std::string found = ReadFile(index_);
    EXPECT_TRUE(found == whole_ || (found == damaged && !is_done)) << n;
    WriteFile(index_, whole_);
  }
  EXPECT_GT(n, 40);
}

}  // namespace
}  // namespace shardshift::ckpt
