// Which steps of a run survive a prune.
// SPDX-License-Identifier: Apache-2.0
#include "ckpt/retention.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <random>

#include "ckpt/io/file.h"
#include "ckpt/io/system_calls.h"
#include "ckpt/reader.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/faulty_disk.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::string StepDir(const std::string& run_dir, int64_t step) {
  return JoinPath(run_dir, StepName(step));
}

// Does not wait for a disk.
class UnsyncedCalls : public SystemCalls {
 public:
  int FSync(int) override { return 0; }
};

// A run directory with checkpoints.
class SampleRun {
 public:
  explicit SampleRun(const std::vector<int64_t>& steps) {
    UnsyncedCalls calls;
    const ScopedSystemCalls scope(calls);
    for (const int64_t step : steps) {
      EXPECT_OK(WriteSample(path(), step, SmallTensors()));
    }
  }

  const std::string& path() const { return dir_.path(); }
  std::string StepDir(int64_t step) const {
    return ckpt::StepDir(path(), step);
  }
  void WriteLatest(const std::string& text) const {
    WriteFile(JoinPath(path(), "latest"), text);
  }
  std::vector<int64_t> Steps() const { return NumbersOf(ListSteps(path())); }

  static std::vector<int64_t> NumbersOf(
      const absl::StatusOr<std::vector<StepEntry>>& steps) {
    std::vector<int64_t> numbers;
    for (const StepEntry& entry : steps.value()) numbers.push_back(entry.step);
    return numbers;
  }

 private:
  TempDir dir_;
};

// The lines about what was left.
std::vector<std::string> Prune(const SampleRun& run,
                               const Retention& retention) {
  UnsyncedCalls calls;
  const ScopedSystemCalls scope(calls);
  const absl::StatusOr<PruneReport> report = PruneRun(run.path(), retention);
  EXPECT_OK(report.status());
  return report.ok() ? report->left : std::vector<std::string>();
}

// B91: a text sort would keep 8 and 9.
TEST(Prune, KeepsTheLastByNumber) {
  const SampleRun run({8, 9, 10, 11});
  EXPECT_THAT(Prune(run, {.keep_last = 2}), IsEmpty());
  EXPECT_THAT(run.Steps(), ElementsAre(10, 11));
}

TEST(Prune, KeepsTheLastByNumberWhereNamesGrowLonger) {
  const SampleRun run({99999900, 100000000});
  Prune(run, {.keep_last = 1});
  EXPECT_THAT(run.Steps(), ElementsAre(100000000));
}

// B91: the step 1000 of an earlier run is no newer than ours.
TEST(Prune, DoesNotCountHigherStepsOfAnotherRun) {
  const SampleRun run({8, 9, 10, 1000});
  run.WriteLatest("step-00000010\n");
  EXPECT_THAT(Prune(run, {.keep_last = 2, .current_step = 10}),
              ElementsAre(HasSubstr("step-00001000 on are of another run")));
  EXPECT_THAT(run.Steps(), ElementsAre(9, 10, 1000));
}

TEST(Prune, KeepsWhatTheCallerProtects) {
  const SampleRun run({1, 2, 3, 4});
  Prune(run, {.keep_last = 1, .protected_steps = {2, 77}});
  EXPECT_THAT(run.Steps(), ElementsAre(2, 4));
}

// B91: keep-last 1 with a newest step that is not whole.
TEST(Prune, NeverDeletesTheNewestStepThatOpensWhole) {
  const SampleRun run({1, 2, 3});
  ASSERT_OK(RemoveTree(JoinPath(run.StepDir(3), PartFileName(1))));
  Prune(run, {.keep_last = 1});
  EXPECT_THAT(run.Steps(), ElementsAre(2, 3));
}

TEST(Prune, DeletesNothingIfFewerStepsAreWholeThanAreToBeKept) {
  const SampleRun run({1, 2, 3});
  ASSERT_OK(RemoveTree(JoinPath(run.StepDir(3), kIndexFileName)));
  Prune(run, {.keep_last = 3});
  EXPECT_THAT(run.Steps(), ElementsAre(1, 2, 3));
}

// B102: relative, absolute from another place, and as a link.
TEST(Prune, NeverDeletesWhatLatestNames) {
  for (const char* text :
       {"step-00000002\n", "/elsewhere/run/step-00000002", "step-00000002/"}) {
    const SampleRun run({1, 2, 3});
    run.WriteLatest(text);
    EXPECT_THAT(Prune(run, {.keep_last = 1}),
                ElementsAre(HasSubstr("step-00000002 is named by")));
    EXPECT_THAT(run.Steps(), ElementsAre(2, 3)) << text;
  }
  const SampleRun run({1, 2, 3});
  ASSERT_OK(RemoveTree(JoinPath(run.path(), "latest")));
  std::filesystem::create_directory_symlink("step-00000002",
                                            run.path() + "/latest");
  Prune(run, {.keep_last = 1});
  EXPECT_THAT(run.Steps(), ElementsAre(2, 3));
}

// B102.
TEST(Prune, TakesALatestThatDanglesOrIsMissing) {
  const SampleRun run({1, 2, 3});
  run.WriteLatest("step-00000009");
  Prune(run, {.keep_last = 2});
  EXPECT_THAT(run.Steps(), ElementsAre(2, 3));
  ASSERT_OK(RemoveTree(JoinPath(run.path(), "latest")));
  Prune(run, {.keep_last = 1});
  EXPECT_THAT(run.Steps(), ElementsAre(3));
}

TEST(Prune, LeavesAStepThatIsBeingRead) {
  const SampleRun run({1, 2, 3});
  {
    ASSERT_OK_AND_ASSIGN(const auto reader, Reader::Open(run.StepDir(1)));
    EXPECT_THAT(Prune(run, {.keep_last = 1}),
                ElementsAre(HasSubstr("step-00000001 is in use")));
  }
  EXPECT_THAT(run.Steps(), ElementsAre(1, 3));
  EXPECT_THAT(Prune(run, {.keep_last = 1}), IsEmpty());
  EXPECT_THAT(run.Steps(), ElementsAre(3));
}

TEST(Prune, LeavesWhatIsNotOurs) {
  const SampleRun run({1, 3, 4});
  WriteFile(JoinPath(run.StepDir(1), "notes.txt"), "mine");
  WriteFile(run.StepDir(2), "a file of that name");
  ASSERT_OK(MakeDirectories(run.path() + "/best"));
  ASSERT_OK(MakeDirectories(run.path() + "/step-2"));
  ASSERT_OK(MakeDirectories(run.StepDir(0) + ".partial"));
  const auto left = Prune(run, {.keep_last = 1});
  EXPECT_THAT(left, ElementsAre(HasSubstr("holds other files"),
                                HasSubstr("step-00000002")));
  EXPECT_THAT(
      ListDirectory(run.path()).value(),
      ElementsAre("best", "latest", "step-00000000.partial", "step-00000001",
                  "step-00000002", "step-00000004", "step-2"));
  EXPECT_EQ(ReadFile(JoinPath(run.StepDir(1), "notes.txt")), "mine");
}

// B103: copied in another order, with other times, and without `latest`.
TEST(Prune, LeavesADirectoryUnderTheNameOfAPart) {
  const SampleRun run({1, 2});
  const std::string deep = JoinPath(run.StepDir(1), PartFileName(5));
  ASSERT_OK(MakeDirectories(deep));
  WriteFile(JoinPath(deep, "thesis.txt"), "years of work");
  ASSERT_OK_AND_ASSIGN(const PruneReport report,
                       PruneRun(run.path(), {.keep_last = 1}));
  EXPECT_THAT(report.left, ElementsAre(HasSubstr("other files")));
  EXPECT_EQ(ReadFile(JoinPath(deep, "thesis.txt")), "years of work");
}

TEST(Prune, GoesOnPastAStepThatItCannotDelete) {
  const SampleRun run({1, 2, 3});
  const std::string in_the_way = run.StepDir(1) + ".deleted";
  ASSERT_OK(MakeDirectories(in_the_way));
  WriteFile(JoinPath(in_the_way, "foreign"), "x");
  ASSERT_OK_AND_ASSIGN(const PruneReport report,
                       PruneRun(run.path(), {.keep_last = 1}));
  EXPECT_THAT(report.left, ElementsAre(HasSubstr("other files"),
                                       HasSubstr("cannot rename")));
  EXPECT_THAT(run.Steps(), ElementsAre(1, 3));
}

TEST(Prune, TakesACopiedRunForWhole) {
  const SampleRun run({1, 2, 3});
  const TempDir dir;
  const std::string copy = JoinPath(dir.path(), "copy");
  std::filesystem::copy(run.path(), copy,
                        std::filesystem::copy_options::recursive);
  ASSERT_OK(RemoveTree(JoinPath(copy, "latest")));
  for (const int64_t step : {1, 2, 3}) {
    std::filesystem::last_write_time(
        StepDir(copy, step), std::filesystem::file_time_type::clock::now() -
                                 std::chrono::hours(step));
  }
  ASSERT_OK(PruneRun(copy, {.keep_last = 2}).status());
  EXPECT_THAT(SampleRun::NumbersOf(ListSteps(copy)), ElementsAre(2, 3));
  for (const int64_t step : {2, 3}) {
    EXPECT_OK(Reader::Open(StepDir(copy, step)).status());
  }
}

TEST(Prune, OnlyTellsInADryRun) {
  const SampleRun run({1, 2, 3});
  ASSERT_OK_AND_ASSIGN(const PruneReport report,
                       PruneRun(run.path(), {.keep_last = 1}, true));
  EXPECT_THAT(SampleRun::NumbersOf(report.deleted), ElementsAre(1, 2));
  EXPECT_THAT(run.Steps(), ElementsAre(1, 2, 3));
}

TEST(Prune, RefusesAPolicyThatWouldKeepNothing) {
  const SampleRun run({1});
  EXPECT_THAT(PruneRun(run.path(), {.keep_last = 0}),
              StatusIs(kInvalid, HasSubstr("the last 0 steps")));
  EXPECT_THAT(PruneRun(run.path(), {.keep_every = -1}),
              StatusIs(kInvalid, HasSubstr("every -1th")));
  EXPECT_THAT(PruneRun(run.path() + "/none", {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

// Against the rule, spelled out, for random runs and policies.
TEST(Prune, KeepsWhatTheRuleSays) {
  std::mt19937 random(20);
  const auto uniform = [&random](int64_t min, int64_t max) {
    return std::uniform_int_distribution<int64_t>(min, max)(random);
  };
  for (int trial = 0; trial < 15; ++trial) {
    std::vector<int64_t> steps;
    for (int64_t step = 0; step < 12; ++step) {
      if (uniform(0, 1) == 1) steps.push_back(step);
    }
    const SampleRun run(steps);
    run.WriteLatest("step-99999999");
    const Retention retention = {.keep_last = uniform(1, 4),
                                 .keep_every = uniform(0, 5),
                                 .protected_steps = {uniform(0, 11)},
                                 .current_step = uniform(4, 11)};
    std::vector<int64_t> expected;
    for (const int64_t step : steps) {
      int64_t newer = 0;
      for (const int64_t other : steps) {
        newer += other > step && other <= *retention.current_step;
      }
      if (newer < retention.keep_last ||
          (retention.keep_every != 0 && step % retention.keep_every == 0) ||
          step == retention.protected_steps[0]) {
        expected.push_back(step);
      }
    }
    Prune(run, retention);
    EXPECT_EQ(run.Steps(), expected) << "trial " << trial;
  }
}

// A prune that dies at its operation `n`, by a loss of power or a kill. Gives
// whether it came so far.
bool PruneDyingAt(int64_t n, bool loses_power) {
  const SampleRun run({1, 2});
  FaultyDisk disk(run.path());
  disk.CrashAt(n);
  {
    const ScopedSystemCalls scope(disk);
    const bool is_done = PruneRun(run.path(), {.keep_last = 1}).ok();
    EXPECT_TRUE(is_done || disk.has_struck()) << n;
  }
  const bool has_struck = disk.has_struck();
  if (loses_power) disk.LoseUnsyncedData(FaultyDisk::Loss::kSome, n);

  for (const int64_t step : run.Steps()) {
    EXPECT_OK(Reader::Open(run.StepDir(step)).status()) << n;
  }
  EXPECT_THAT(Prune(run, {.keep_last = 1}), IsEmpty());
  EXPECT_THAT(ListDirectory(run.path()).value(),
              ElementsAre("latest", "step-00000002"))
      << n;
  return has_struck;
}

TEST(Prune, LeavesWholeStepsWhereverItDiesAndTheNextOneTidiesUp) {
  int64_t n = 0;
  while (PruneDyingAt(n, n % 2 == 0)) ++n;
  EXPECT_GT(n, 30);
}

TEST(Resolve, RefusesAStepThatIsBeingDeleted) {
  const SampleRun run({1});
  ASSERT_OK(Rename(run.StepDir(1), run.StepDir(1) + ".deleted"));
  EXPECT_THAT(ResolveCheckpoint(run.StepDir(1) + ".deleted/"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("unfinished deletion")));
}

TEST(Reader, OpensNoPartTwiceWhileItIsInUse) {
  constexpr int64_t kParts = 100;  // more than a reader keeps open
  const TempDir directory;
  SampleTensor tensor{.info = {"w", "master", DType::kF32, {kParts, 2}},
                      .pieces = {}};
  for (int64_t part = 0; part < kParts; ++part) {
    tensor.pieces.push_back({part, {.start = {part, 0}, .extent = {1, 2}}});
  }
  ASSERT_OK(WriteSample(directory.path(), 1, {tensor}));
  ASSERT_OK_AND_ASSIGN(const auto reader,
                       Reader::Open(JoinPath(directory.path(), StepName(1))));
  std::vector<std::shared_ptr<const File>> in_use;
  for (int64_t part = 0; part < kParts; ++part) {
    ASSERT_OK_AND_ASSIGN(auto file, reader->PartFile(part));
    in_use.push_back(std::move(file));
  }
  for (int64_t part = 0; part < kParts; ++part) {
    ASSERT_OK_AND_ASSIGN(const auto again, reader->PartFile(part));
    EXPECT_EQ(again, in_use[part]) << part;
  }
}

TEST(Reader, RefusesAStepWhoseDeleterHasLockedIt) {
  const SampleRun run({1, 2});
  ASSERT_OK_AND_ASSIGN(const File lock,
                       LockDirectory(run.StepDir(2), Lock::kExclusive));
  EXPECT_THAT(Reader::Open(run.StepDir(2)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("is being deleted")));
  EXPECT_EQ(ResolveCheckpoint(run.path()).value().step, 1);
}

TEST(LockRun, RefusesTheSecondRun) {
  const TempDir dir;
  const std::string run_dir = JoinPath(dir.path(), "new/run");
  {
    ASSERT_OK_AND_ASSIGN(const File lock, LockRun(run_dir));
    EXPECT_THAT(LockRun(run_dir),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("another run saves into " + run_dir)));
    EXPECT_OK(PruneRun(run_dir, {}).status());
  }
  EXPECT_OK(LockRun(run_dir).status());
}

TEST(ParsePartFileName, TakesWholeNamesOnly) {
  EXPECT_EQ(ParsePartFileName("part-00012.h5"), 12);
  EXPECT_EQ(ParsePartFileName("part-123456.h5"), 123456);
  for (const char* name :
       {"part-12.h5", "part-.h5", "part-00012.h5.partial", "part-000012.h5",
        "part--0001.h5", "xpart-00012.h5", "part-00012", ""}) {
    EXPECT_EQ(ParsePartFileName(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace shardshift::ckpt
