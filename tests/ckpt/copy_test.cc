// Verified copies.
// SPDX-License-Identifier: Apache-2.0
#include "ckpt/copy.h"

#include <cerrno>
#include <filesystem>
#include <memory>
#include <random>

#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/run_dir.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/faulty_disk.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

// A run with step 3, of random tensors and one of several blocks, and a place
// for copies beside it.
class Copy : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(1);
    std::vector<SampleTensor> tensors = RandomTensors(3, random);
    const int64_t rows = kBlockBytes / 4096 + 3;
    tensors.push_back({{"big", "master", DType::kF32, {rows, 1025}},
                       {{1, {{0, 0}, {rows, 1025}}}}});
    ASSERT_OK(WriteSample(run_dir_, 3, tensors));
    WriteFile(JoinPath(step_dir_, "notes.txt"), "not of the checkpoint");
  }

  absl::Status CopyTo(const std::string& run_dir) {
    SS_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> source,
                        Reader::Open(step_dir_));
    return CopyCheckpoint(*source, run_dir);
  }

  const TempDir dir_;
  const std::string run_dir_ = JoinPath(dir_.path(), "run");
  const std::string step_dir_ = JoinPath(run_dir_, StepName(3));
  const std::string copy_ = JoinPath(dir_.path(), "copy");
};

TEST_F(Copy, HasTheSameBytesInTheListedFiles) {
  ASSERT_OK(CopyTo(copy_));
  EXPECT_THAT(ListDirectory(copy_).value(),
              ElementsAre("latest", "step-00000003"));
  EXPECT_EQ(ReadFile(JoinPath(copy_, "latest")), "step-00000003\n");
  const std::string step_dir = JoinPath(copy_, StepName(3));
  const std::vector<std::string> names = ListDirectory(step_dir).value();
  EXPECT_THAT(names, ElementsAre("index.h5", "part-00000.h5", "part-00001.h5",
                                 "part-00002.h5"));
  for (const std::string& name : names) {
    EXPECT_TRUE(ReadFile(JoinPath(step_dir, name)) ==
                ReadFile(JoinPath(step_dir_, name)))
        << name;
  }
}

TEST_F(Copy, TellsHowFarItIs) {
  ASSERT_OK_AND_ASSIGN(const auto source, Reader::Open(step_dir_));
  int64_t last = 0;
  ASSERT_OK(CopyCheckpoint(*source, copy_, [&](int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    EXPECT_EQ(total, source->total_bytes());
    last = done;
  }));
  EXPECT_EQ(last, source->total_bytes());
}

TEST_F(Copy, JoinsTheOtherStepsOfARun) {
  ASSERT_OK(WriteSample(copy_, 9, SmallTensors()));
  ASSERT_OK(CopyTo(copy_));
  EXPECT_THAT(ListDirectory(copy_).value(),
              ElementsAre("latest", "step-00000003", "step-00000009"));
  EXPECT_EQ(ReadFile(JoinPath(copy_, "latest")), "step-00000009\n");
  EXPECT_THAT(CopyTo(copy_), StatusIs(absl::StatusCode::kAlreadyExists,
                                      HasSubstr("step-00000003 exists")));
}

TEST_F(Copy, RefusesAPlaceInsideTheSourceOrARunThatSaves) {
  EXPECT_THAT(CopyTo(JoinPath(step_dir_, "backup")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("lies inside the checkpoint")));
  EXPECT_FALSE(Exists(JoinPath(step_dir_, "backup")).value());
  ASSERT_OK_AND_ASSIGN(const File lock, LockRun(copy_));
  EXPECT_THAT(CopyTo(copy_), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("another run saves into")));
}

// Damage after the source was opened, in payload and elsewhere.
TEST_F(Copy, NamesDamageOfTheSourceAndLeavesNothing) {
  ASSERT_OK_AND_ASSIGN(const auto source, Reader::Open(step_dir_));
  const int64_t big = source->FindTensor("big", "master").value();
  const Fragment& fragment = source->Fragments(big)[0];
  ASSERT_EQ(fragment.blocks.size(), 2u);
  const std::string part = JoinPath(step_dir_, PartFileName(1));
  const std::string index = JoinPath(step_dir_, kIndexFileName);
  struct Damage {
    std::string path;
    int64_t offset_bytes;
    std::string says;
  };
  for (const Damage& damage :
       {Damage{part, fragment.blocks[1].offset_bytes + 7, "tensor \"big\""},
        Damage{part, kUserBlockBytes + 4, part + ": digest"},
        Damage{index, kUserBlockBytes + 4, index + ": digest"},
        Damage{part, 100, part}}) {
    const std::string whole = ReadFile(damage.path);
    std::string bytes = whole;
    bytes[damage.offset_bytes] ^= 4;
    WriteFile(damage.path, bytes);
    EXPECT_THAT(CopyCheckpoint(*source, copy_),
                StatusIs(kDataLoss, HasSubstr(damage.says)));
    EXPECT_FALSE(Exists(copy_).value());
    WriteFile(damage.path, whole);
  }
  EXPECT_OK(CopyCheckpoint(*source, copy_));
}

// A copy whose operation `n` fails or is the last. Gives whether it came so
// far.
bool CopyFailingAt(const Reader& source, int64_t n, bool is_last) {
  const TempDir dir;
  const std::string run_dir = JoinPath(dir.path(), "new");
  const std::string step_dir = JoinPath(run_dir, StepName(source.step()));
  FaultyDisk disk(dir.path());
  if (is_last) {
    disk.CrashAt(n);
  } else {
    disk.FailAt(n, ENOSPC);
  }
  bool is_done = false;
  {
    const ScopedSystemCalls scope(disk);
    is_done = CopyCheckpoint(source, run_dir).ok();
  }
  const bool has_struck = disk.has_struck();
  if (is_last) disk.LoseUnsyncedData(FaultyDisk::Loss::kSome, n);
  if (is_done || (is_last && Exists(step_dir).value())) {
    EXPECT_OK(Reader::Open(step_dir).status()) << n;
  } else if (!is_last) {
    EXPECT_FALSE(Exists(step_dir).value()) << n;
    EXPECT_FALSE(Exists(step_dir + ".partial").value()) << n;
  }
  EXPECT_TRUE(is_done || has_struck);
  return has_struck;
}

TEST(CopyFault, LeavesAWholeStepOrNoneWhereverItFails) {
  const TempDir dir;
  ASSERT_OK(WriteSample(dir.path(), 1, SmallTensors()));
  ASSERT_OK_AND_ASSIGN(const auto source,
                       Reader::Open(JoinPath(dir.path(), StepName(1))));
  for (const bool is_last : {false, true}) {
    int64_t n = 0;
    while (CopyFailingAt(*source, n, is_last)) ++n;
    EXPECT_GT(n, 40);
  }
}

TEST(LiesWithin, FollowsLinksAndWantsWholeNames) {
  const TempDir dir;
  const std::string a = JoinPath(dir.path(), "a");
  ASSERT_OK(MakeDirectories(a));
  std::filesystem::create_directory_symlink(a, JoinPath(dir.path(), "link"));
  EXPECT_TRUE(LiesWithin(a, a + "/"));
  EXPECT_TRUE(LiesWithin(a + "/b/c", a));
  EXPECT_TRUE(LiesWithin(JoinPath(dir.path(), "link/b"), a));
  EXPECT_FALSE(LiesWithin(a + "b", a));
  EXPECT_FALSE(LiesWithin(dir.path(), a));
}

}  // namespace
}  // namespace shardshift::ckpt
