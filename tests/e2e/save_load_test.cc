// One run on a few ranks through every part, small enough for the sanitizers.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/e2e/saved_runs.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/tiny_model.h"

namespace shardshift::trainer {
namespace {

const reshard::Layout kFirst = {
    .tensor = 2, .pipeline = 2, .data = 2, .distributed_optimizer = true};
const reshard::Layout kSecond = {
    .tensor = 4, .pipeline = 1, .data = 2, .distributed_optimizer = true};

TEST(SaveLoad, GoesOnOnAnotherLayoutWithTheSameBits) {
  // Which elements are dropped follows from the numbers of samples.
  RunConfig dropout = TinyGpt();
  dropout.attention_dropout = dropout.hidden_dropout = 0.1;
  for (const RunConfig& config : {TinyGpt(), TinyLlama(), dropout}) {
    const ScratchDir scratch;
    const std::string run = scratch.Path("run");
    ASSERT_OK(TrainAndSave(config, kFirst, 2, run));
    ASSERT_OK_AND_ASSIGN(std::vector<std::string> expected,
                         TrainAndLog(MockRun(config, {}, 3)));
    expected.erase(expected.begin(), expected.begin() + 2);
    ASSERT_OK_AND_ASSIGN(const std::vector<std::string> log,
                         Resume(config, kSecond, run, 2, 3));
    EXPECT_EQ(log, expected);
  }
}

TEST(SaveLoad, GoesOnWithAndWithoutSequenceParallel) {
  const RunConfig config = TinyGpt();
  const ScratchDir scratch;
  ASSERT_OK_AND_ASSIGN(std::vector<std::string> expected,
                       TrainAndLog(MockRun(config, {}, 3)));
  expected.erase(expected.begin(), expected.begin() + 2);
  for (const bool saves : {false, true}) {
    const std::string run = scratch.Path(saves ? "with" : "without");
    ASSERT_OK(
        TrainAndSave(config, kFirst, 2, run, {.sequence_parallel = saves}));
    for (const bool goes_on : {false, true}) {
      ASSERT_OK_AND_ASSIGN(const std::vector<std::string> log,
                           Resume(config, kSecond, run, 2, 3, /*save=*/false,
                                  {.sequence_parallel = goes_on}));
      EXPECT_EQ(log, expected) << saves << " to " << goes_on;
    }
  }
  // All but what the index says of the run that wrote it.
  auto with = FilesBelow(scratch.Path("with/step-00000002"));
  auto without = FilesBelow(scratch.Path("without/step-00000002"));
  EXPECT_EQ(with.erase("index.h5"), 1);
  EXPECT_EQ(without.erase("index.h5"), 1);
  EXPECT_EQ(FirstDifference(with, without), "");
}

TEST(SaveLoad, GoesOnInterleavedAndBackWithTheSameBits) {
  const reshard::Layout even = {
      .pipeline = 2, .data = 2, .distributed_optimizer = true};
  reshard::Layout interleaved = even;
  interleaved.virtual_stages = 2;
  const reshard::Layout uneven = {
      .tensor = 2, .pipeline = 3, .first_stage_layers = 2};
  for (const RunConfig& config : {TinyGpt(), TinyLlama()}) {
    const ScratchDir scratch;
    const std::string run = scratch.Path("run");
    ASSERT_OK_AND_ASSIGN(std::vector<std::string> expected,
                         TrainAndLog(MockRun(config, {}, 4)));
    ASSERT_OK(TrainAndSave(config, even, 1, run));
    std::vector<std::string> log = {expected[0]};
    int64_t step = 1;
    for (const reshard::Layout& layout : {interleaved, uneven, even}) {
      ASSERT_OK_AND_ASSIGN(
          const std::vector<std::string> lines,
          Resume(config, layout, run, step, step + 1, /*save=*/true));
      log.insert(log.end(), lines.begin(), lines.end());
      ++step;
    }
    EXPECT_EQ(log, expected);
  }
}

TEST(SaveLoad, ReshardMakesTheBytesOfTheTrainersSave) {
  const RunConfig config = TinyGpt();
  const ScratchDir scratch;
  ASSERT_OK(TrainAndSave(config, kFirst, 1, scratch.Path("first")));
  ASSERT_OK(TrainAndSave(config, kSecond, 1, scratch.Path("second")));
  ASSERT_OK(Reshard(scratch.Path("first"), scratch.Path("made"), kSecond));
  EXPECT_EQ(FirstDifference(FilesBelow(scratch.Path("made")),
                            FilesBelow(scratch.Path("second"))),
            "");
}

TEST(SaveLoad, RefusesAnotherModelOnAllRanks) {
  const ScratchDir scratch;
  ASSERT_OK(TrainAndSave(TinyGpt(), kFirst, 1, scratch.Path("run")));
  EXPECT_THAT(Resume(TinyLlama(), kSecond, scratch.Path("run"), 1, 2),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::HasSubstr("layers.0.")));
}

TEST(SaveLoad, RefusesASecondSaveOfAStep) {
  const ScratchDir scratch;
  ASSERT_OK(TrainAndSave(TinyGpt(), kFirst, 1, scratch.Path("run")));
  const auto before = FilesBelow(scratch.Path("run/step-00000001"));
  EXPECT_THAT(TrainAndSave(TinyGpt(), kSecond, 1, scratch.Path("run")),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       ::testing::HasSubstr("step-00000001")));
  EXPECT_EQ(
      FirstDifference(FilesBelow(scratch.Path("run/step-00000001")), before),
      "");
}

}  // namespace
}  // namespace shardshift::trainer
