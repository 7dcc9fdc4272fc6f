// Runs that save while they train on, over slow and failing disks.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "ckpt/io/system_calls.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "tests/e2e/saved_runs.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/tiny_model.h"

namespace shardshift::trainer {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const reshard::Layout kLayout = {
    .tensor = 2, .pipeline = 1, .data = 2, .distributed_optimizer = true};

TrainOptions SavingRun(const std::string& run_dir, int64_t train_iters,
                       int64_t save_interval) {
  TrainOptions run = MockRun(TinyGpt(), kLayout, train_iters);
  run.save_run_dir = run_dir;
  run.save_interval = save_interval;
  return run;
}

// The iteration of a line of the log, or 0.
int64_t IterationOf(const std::string& line) {
  int64_t iteration = 0;
  return std::sscanf(line.c_str(), " iteration %ld/", &iteration) == 1
             ? iteration
             : 0;
}

std::vector<int64_t> StepsIn(const std::string& run_dir) {
  std::vector<int64_t> steps;
  const auto entries = ckpt::ListSteps(run_dir);
  if (!entries.ok()) return steps;
  for (const ckpt::StepEntry& entry : *entries) steps.push_back(entry.step);
  return steps;
}

// A disk on which parts of step `step` are made only when iteration
// `iteration` is over.
class LateDisk : public ckpt::SystemCalls {
 public:
  LateDisk(int64_t step, int64_t iteration)
      : parts_(ckpt::StepName(step) + ".partial/part-"),
        iteration_(iteration) {}

  void EndIteration(int64_t iteration) {
    const std::lock_guard lock(mutex_);
    last_ = iteration;
    ended_.notify_all();
  }

  int Open(const std::string& path, int flags, mode_t mode) override {
    if (absl::StrContains(path, parts_)) {
      std::unique_lock lock(mutex_);
      ended_.wait(lock, [this] { return last_ >= iteration_; });
    }
    return SystemCalls::Open(path, flags, mode);
  }

 private:
  const std::string parts_;
  const int64_t iteration_;
  std::mutex mutex_;
  std::condition_variable ended_;
  int64_t last_ = 0;
};

// B87, B88: three iterations later, neither step, state nor values are theirs.
TEST(AsyncRuns, SaveTheStepThatWasDueHoweverLateTheDisk) {
  const ScratchDir scratch;
  ASSERT_OK(TrainAndLog(SavingRun(scratch.Path("sync"), 8, 4)).status());
  LateDisk disk(4, 7);
  const ckpt::ScopedSystemCalls scope(disk);
  TrainOptions run = SavingRun(scratch.Path("async"), 8, 4);
  run.async_save = true;
  run.print = [&](const std::string& line) {
    const int64_t iteration = IterationOf(line);
    if (iteration == 0) return;
    if (iteration == 7) {
      EXPECT_FALSE(std::filesystem::exists(scratch.Path("async/latest")));
    }
    disk.EndIteration(iteration);
  };
  ASSERT_OK(TrainAndLog(run).status());
  EXPECT_EQ(FirstDifference(FilesBelow(scratch.Path("async")),
                            FilesBelow(scratch.Path("sync"))),
            "");
}

TEST(AsyncRuns, HaveTheLossesOfSynchronousOnesAndWriteTheSameBytes) {
  const ScratchDir scratch;
  TrainOptions run = SavingRun(scratch.Path("sync"), 3, 1);
  ASSERT_OK_AND_ASSIGN(const auto expected, TrainAndLog(run));
  run.save_run_dir = scratch.Path("async");
  run.async_save = true;
  ASSERT_OK_AND_ASSIGN(const auto log, TrainAndLog(run));
  EXPECT_EQ(log, expected);
  EXPECT_EQ(FirstDifference(FilesBelow(scratch.Path("async")),
                            FilesBelow(scratch.Path("sync"))),
            "");
}

// A save that is due waits for the one before; the log says for how long.
TEST(AsyncRuns, NeverMixTwoSaves) {
  class SlowDisk : public ckpt::SystemCalls {
   public:
    int FSync(int fd) override {
      absl::SleepFor(absl::Milliseconds(30));
      return SystemCalls::FSync(fd);
    }
    int MkDir(const std::string& path, mode_t mode) override {
      if (absl::EndsWith(path, ".partial") && ++open_saves_ > 1) mixed_ = true;
      return SystemCalls::MkDir(path, mode);
    }
    int Rename(const std::string& from, const std::string& to,
               unsigned flags) override {
      if (absl::EndsWith(from, ckpt::StepName(2) + ".partial")) {
        // Until long after the next save is due, on a busy machine as well.
        next_is_due_.WaitForNotification();
        absl::SleepFor(absl::Seconds(1));
      }
      if (absl::EndsWith(from, ".partial")) --open_saves_;
      return SystemCalls::Rename(from, to, flags);
    }
    bool mixed() const { return mixed_; }
    void EndIteration(int64_t iteration) {
      if (iteration == 3) next_is_due_.Notify();
    }

   private:
    absl::Notification next_is_due_;
    std::atomic<int> open_saves_ = 0;
    std::atomic<bool> mixed_ = false;
  };
  const ScratchDir scratch;
  ASSERT_OK(TrainAndLog(SavingRun(scratch.Path("sync"), 4, 1)).status());
  SlowDisk disk;
  const ckpt::ScopedSystemCalls scope(disk);
  std::vector<std::string> lines;
  TrainOptions run = SavingRun(scratch.Path("async"), 4, 1);
  run.async_save = true;
  run.print = [&](const std::string& line) {
    lines.push_back(line);
    disk.EndIteration(IterationOf(line));
  };
  ASSERT_OK(TrainAndLog(run).status());
  EXPECT_FALSE(disk.mixed());
  EXPECT_THAT(lines, Contains(::testing::AllOf(HasSubstr("saved "),
                                               HasSubstr("step-00000002 in "),
                                               HasSubstr(" s for the end"))));
  EXPECT_EQ(FirstDifference(FilesBelow(scratch.Path("async")),
                            FilesBelow(scratch.Path("sync"))),
            "");
}

// Fails one kind of call on what belongs to one step, and remembers the
// iteration in which it first did.
class FailingDisk : public ckpt::SystemCalls {
 public:
  enum class Call { kMkDir, kOpenPart, kRename };

  FailingDisk(Call call, int error, int64_t step)
      : call_(call),
        error_(error),
        partial_(ckpt::StepName(step) + ".partial") {}

  void EndIteration(int64_t iteration) { iteration_ = iteration; }
  int64_t failed_at() const { return failed_at_; }

  int MkDir(const std::string& path, mode_t mode) override {
    return Fails(Call::kMkDir, path) ? -1 : SystemCalls::MkDir(path, mode);
  }
  int Open(const std::string& path, int flags, mode_t mode) override {
    const bool is_part = absl::StrContains(path, "part-00001");
    return is_part && Fails(Call::kOpenPart, path)
               ? -1
               : SystemCalls::Open(path, flags, mode);
  }
  int Rename(const std::string& from, const std::string& to,
             unsigned flags) override {
    return Fails(Call::kRename, from) ? -1
                                      : SystemCalls::Rename(from, to, flags);
  }

 private:
  bool Fails(Call call, const std::string& path) {
    if (call != call_ || !absl::StrContains(path, partial_)) return false;
    if (failed_at_ == 0) failed_at_ = iteration_.load();
    errno = error_;
    return true;
  }

  const Call call_;
  const int error_;
  const std::string partial_;
  std::atomic<int64_t> iteration_ = 0;
  std::atomic<int64_t> failed_at_ = 0;
};

struct Failure {
  std::string name;
  FailingDisk::Call call;
  int error;
  absl::StatusCode code;
};

class AsyncFailure : public ::testing::TestWithParam<Failure> {};

// B90: the run ends at once, and the older step stays the latest.
TEST_P(AsyncFailure, EndsTheRunAtOnceAndKeepsOlderSteps) {
  const Failure& failure = GetParam();
  const ScratchDir scratch;
  const std::string run_dir = scratch.Path("run");
  FailingDisk disk(failure.call, failure.error, 4);
  int64_t last = 0;
  {
    const ckpt::ScopedSystemCalls scope(disk);
    TrainOptions run = SavingRun(run_dir, 100000, 2);
    run.async_save = true;
    run.print = [&](const std::string& line) {
      if (const int64_t iteration = IterationOf(line); iteration > 0) {
        last = iteration;
        disk.EndIteration(iteration);
      }
    };
    EXPECT_THAT(TrainAndLog(run),
                StatusIs(failure.code, HasSubstr("step-00000004")));
  }
  ASSERT_GE(disk.failed_at(), 4);
  // Some, for a busy machine on which the thread that failed is slow to say so.
  EXPECT_LE(last, disk.failed_at() + 20);
  EXPECT_THAT(StepsIn(run_dir), ElementsAre(2));
  ASSERT_OK_AND_ASSIGN(const auto found, ckpt::ResolveCheckpoint(run_dir));
  EXPECT_EQ(found.step, 2);
  EXPECT_EQ(FilesBelow(run_dir)["latest"], "step-00000002\n");
  ASSERT_OK_AND_ASSIGN(const auto expected,
                       TrainAndLog(MockRun(TinyGpt(), {}, 3)));
  ASSERT_OK_AND_ASSIGN(const auto log, Resume(TinyGpt(), {}, run_dir, 2, 3));
  EXPECT_THAT(log, ElementsAre(expected.back()));
}

INSTANTIATE_TEST_SUITE_P(
    Disks, AsyncFailure,
    ::testing::Values(Failure{"ReadOnlyAtTheStart", FailingDisk::Call::kMkDir,
                              EROFS, absl::StatusCode::kPermissionDenied},
                      Failure{"FullInOnePart", FailingDisk::Call::kOpenPart,
                              ENOSPC, absl::StatusCode::kResourceExhausted},
                      Failure{"BrokenAtTheCommit", FailingDisk::Call::kRename,
                              EIO, absl::StatusCode::kUnavailable}),
    [](const auto& test) { return test.param.name; });

class RetentionOfRuns : public ::testing::TestWithParam<bool> {};

TEST_P(RetentionOfRuns, KeepsTheLastAndEveryMth) {
  const ScratchDir scratch;
  TrainOptions run = SavingRun(scratch.Path("run"), 7, 1);
  run.async_save = GetParam();
  run.retention = ckpt::Retention{.keep_last = 2, .keep_every = 3};
  ASSERT_OK(TrainAndLog(run).status());
  EXPECT_THAT(StepsIn(scratch.Path("run")), ElementsAre(3, 6, 7));
}

TEST_P(RetentionOfRuns, KeepsTheStepTheRunCameFrom) {
  const ScratchDir scratch;
  ASSERT_OK(TrainAndSave(TinyGpt(), kLayout, 2, scratch.Path("run")));
  TrainOptions run = SavingRun(scratch.Path("run"), 5, 1);
  run.async_save = GetParam();
  run.start = {.step = 2, .consumed_samples = 2 * run.config.global_batch_size};
  run.retention = ckpt::Retention{.keep_last = 1, .protected_steps = {2}};
  ASSERT_OK_AND_ASSIGN(run.checkpoint,
                       ckpt::Reader::Open(scratch.Path("run/step-00000002")));
  ASSERT_OK(TrainAndLog(run).status());
  EXPECT_THAT(StepsIn(scratch.Path("run")), ElementsAre(2, 5));
}

INSTANTIATE_TEST_SUITE_P(Saves, RetentionOfRuns, ::testing::Bool(),
                         [](const auto& test) {
                           return test.param ? "Async" : "Sync";
                         });

}  // namespace
}  // namespace shardshift::trainer
