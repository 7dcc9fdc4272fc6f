// Publishing, replacing and finding checkpoints.
// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "ckpt/writer.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
constexpr auto kAlreadyExists = absl::StatusCode::kAlreadyExists;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::string StepDir(const TempDir& dir, int64_t step) {
  return JoinPath(dir.path(), StepName(step));
}

std::string StateOf(const std::string& step_dir) {
  const auto reader = Reader::Open(step_dir);
  return reader.ok() ? (*reader)->state() : reader.status().ToString();
}

TEST(Commit, LeavesOnlyTheStepAndTheHint) {
  const TempDir dir;
  ASSERT_OK(WriteSample(dir.path(), 10, SmallTensors()));
  EXPECT_THAT(ListDirectory(dir.path()).value(),
              ElementsAre("latest", "step-00000010"));
  EXPECT_THAT(ListDirectory(StepDir(dir, 10)).value(),
              ElementsAre("index.h5", "part-00000.h5", "part-00001.h5"));
  EXPECT_EQ(ReadFile(JoinPath(dir.path(), "latest")), "step-00000010\n");
}

TEST(Commit, RefusesAnExistingStepUnlessItIsToBeReplaced) {
  const TempDir dir;
  ASSERT_OK(WriteSample(dir.path(), 1, SmallTensors(), false, "[1]"));
  EXPECT_THAT(WriteSample(dir.path(), 1, SmallTensors(), false, "[2]"),
              StatusIs(kAlreadyExists, HasSubstr("step-00000001")));
  EXPECT_EQ(StateOf(StepDir(dir, 1)), "[1]");
  ASSERT_OK(WriteSample(dir.path(), 1, SmallTensors(), true, "[3]"));
  EXPECT_EQ(StateOf(StepDir(dir, 1)), "[3]");
  EXPECT_THAT(ListDirectory(dir.path()).value(),
              ElementsAre("latest", "step-00000001"));
}

TEST(Commit, DoesNotReplaceWhatIsNoCheckpoint) {
  const TempDir dir;
  ASSERT_OK(MakeDirectories(StepDir(dir, 1)));
  WriteFile(JoinPath(StepDir(dir, 1), "thesis.tex"), "years of work");
  EXPECT_THAT(WriteSample(dir.path(), 1, SmallTensors(), true),
              StatusIs(kAlreadyExists, HasSubstr("in the way")));
  EXPECT_EQ(ReadFile(JoinPath(StepDir(dir, 1), "thesis.tex")), "years of work");
}

// A save may be killed with any of its files there, or none.
TEST(Begin, RemovesALeftoverOfASave) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const std::string partial,
                       BeginCheckpoint(dir.path(), 3));
  ASSERT_OK(WriteSampleParts(partial, {1, "{}"}, SmallTensors()).status());
  WriteFile(JoinPath(partial, "index.h5"), "half");
  EXPECT_OK(BeginCheckpoint(dir.path(), 3));
  EXPECT_THAT(ListDirectory(partial).value(), IsEmpty());
}

TEST(Begin, RefusesToRemoveWhatIsNotOurs) {
  const TempDir dir;
  const std::string partial = StepDir(dir, 3) + ".partial";
  ASSERT_OK(MakeDirectories(partial));
  WriteFile(JoinPath(partial, "notes.txt"), "mine");
  EXPECT_THAT(BeginCheckpoint(dir.path(), 3),
              StatusIs(kAlreadyExists, HasSubstr("move it away")));
  EXPECT_EQ(ReadFile(JoinPath(partial, "notes.txt")), "mine");
}

TEST(Commit, PublishesNothingThatIsNotWhole) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const std::string partial,
                       BeginCheckpoint(dir.path(), 1));
  ASSERT_OK_AND_ASSIGN(std::vector<PartReceipt> receipts,
                       WriteSampleParts(partial, {1, "{}"}, SmallTensors()));
  EXPECT_THAT(CommitCheckpoint(dir.path(), {1, "[]"}, receipts, "{}", false),
              StatusIs(kInvalid, HasSubstr("another state")));
  const std::vector<PartReceipt> one = {receipts[0]};
  EXPECT_THAT(CommitCheckpoint(dir.path(), {1, "{}"}, one, "{}", false),
              StatusIs(kInvalid, HasSubstr("tensor \"w\" (master): nothing "
                                           "holds all of [0:6,0:8]")));
  const std::vector<PartReceipt> twice = {receipts[0], receipts[0]};
  EXPECT_THAT(CommitCheckpoint(dir.path(), {1, "{}"}, twice, "{}", false),
              StatusIs(kInvalid, HasSubstr("given twice")));
  ASSERT_OK(RemoveTree(JoinPath(partial, PartFileName(1))));
  EXPECT_THAT(CommitCheckpoint(dir.path(), {1, "{}"}, receipts, "{}", false),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("part-00001")));
  EXPECT_FALSE(Exists(StepDir(dir, 1)).value());
  EXPECT_FALSE(Exists(JoinPath(dir.path(), "latest")).value());
}

TEST(ParseStepName, TakesWholeNamesOnly) {
  EXPECT_EQ(ParseStepName("step-00000010"), 10);
  EXPECT_EQ(ParseStepName("step-123456789"), 123456789);
  for (const char* name :
       {"step-10", "step-00000010.partial", "step-0123456789", "step--0000001",
        "step- 0000001", "Step-00000010", "step-", "", "step-0000001x",
        "step-99999999999999999999"}) {
    EXPECT_EQ(ParseStepName(name), std::nullopt) << name;
  }
}

TEST(ListSteps, OrdersByNumber) {
  const TempDir dir;
  for (const int64_t step : {100000000, 9, 10}) {
    ASSERT_OK(MakeDirectories(StepDir(dir, step)));
  }
  ASSERT_OK(MakeDirectories(StepDir(dir, 11) + ".partial"));
  ASSERT_OK_AND_ASSIGN(const std::vector<StepEntry> steps,
                       ListSteps(dir.path()));
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].step, 9);
  EXPECT_EQ(steps[2].step, 100000000);
}

TEST(Resolve, TakesTheNewestStepThatOpensAndSaysSo) {
  const TempDir dir;
  for (const int64_t step : {9, 10, 11}) {
    ASSERT_OK(WriteSample(dir.path(), step, SmallTensors()));
  }
  ASSERT_OK_AND_ASSIGN(const ResolvedCheckpoint newest,
                       ResolveCheckpoint(dir.path()));
  EXPECT_EQ(newest.step, 11);
  EXPECT_EQ(newest.note, "");

  ASSERT_OK(RemoveTree(JoinPath(StepDir(dir, 11), "part-00001.h5")));
  ASSERT_OK_AND_ASSIGN(const ResolvedCheckpoint older,
                       ResolveCheckpoint(dir.path()));
  EXPECT_EQ(older.step, 10);
  EXPECT_THAT(older.note, HasSubstr("part-00001.h5"));
  EXPECT_THAT(ResolveCheckpoint(StepDir(dir, 11)),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("lacks 1 of 2 parts: part-00001.h5")));
}

TEST(Resolve, NeverTakesAPartial) {
  const TempDir dir;
  ASSERT_OK(WriteSample(dir.path(), 1, SmallTensors()));
  const std::string partial = StepDir(dir, 2) + ".partial";
  ASSERT_OK(Rename(StepDir(dir, 1), partial));
  EXPECT_THAT(
      ResolveCheckpoint(dir.path()),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("holds no checkpoint")));
  EXPECT_THAT(
      ResolveCheckpoint(partial + "/"),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("unfinished")));
}

TEST(Open, RefusesADirectoryNamedAfterAnotherStep) {
  const TempDir dir;
  ASSERT_OK(WriteSample(dir.path(), 1, SmallTensors()));
  ASSERT_OK(Rename(StepDir(dir, 1), StepDir(dir, 2)));
  EXPECT_THAT(Reader::Open(StepDir(dir, 2)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("holds step 1")));
  ASSERT_OK(Rename(StepDir(dir, 2), JoinPath(dir.path(), "best")));
  EXPECT_OK(Reader::Open(JoinPath(dir.path(), "best")));
}

}  // namespace
}  // namespace shardshift::ckpt
