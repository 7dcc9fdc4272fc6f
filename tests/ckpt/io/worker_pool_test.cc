// SPDX-License-Identifier: Apache-2.0
#include "ckpt/io/worker_pool.h"

#include <atomic>
#include <latch>

#include "absl/strings/str_cat.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Lt;

absl::Status ErrorOf(int64_t index) {
  return absl::DataLossError(absl::StrCat("task ", index));
}

TEST(WorkerPool, RunsEachTaskOnce) {
  for (const int64_t num_threads : {0, 1, 3}) {
    WorkerPool pool(num_threads);
    std::vector<int> runs(1000);
    EXPECT_OK(pool.Run(1000, [&](int64_t index) {
      ++runs[index];
      return absl::OkStatus();
    }));
    EXPECT_THAT(runs, Each(1));
    EXPECT_OK(pool.Run(0, ErrorOf));
  }
}

TEST(WorkerPool, GivesTheErrorOfTheFirstTaskThoughALaterOneFailsBefore) {
  WorkerPool pool(2);
  std::latch later_failed(1);
  const absl::Status status = pool.Run(10, [&](int64_t index) {
    if (index == 3) later_failed.wait();
    if (index == 5) later_failed.count_down();
    return index == 3 || index == 5 ? ErrorOf(index) : absl::OkStatus();
  });
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("task 3")));
}

TEST(WorkerPool, BeginsNoTaskAfterAnError) {
  for (const int64_t num_threads : {0, 3}) {
    WorkerPool pool(num_threads);
    std::atomic<int64_t> num_begun = 0;
    EXPECT_FALSE(pool.Run(1'000'000,
                          [&](int64_t index) {
                            ++num_begun;
                            return index == 2 ? ErrorOf(index)
                                              : absl::OkStatus();
                          })
                     .ok());
    EXPECT_THAT(num_begun, Lt(1'000'000));
    EXPECT_TRUE(num_threads > 0 || num_begun == 3) << num_begun;
  }
}

TEST(WorkerPool, LetsTasksUseIt) {
  WorkerPool pool(2);
  std::atomic<int64_t> num_run = 0;
  const auto leaf = [&](int64_t) {
    ++num_run;
    return absl::OkStatus();
  };
  const auto branch = [&](int64_t) {
    WorkerPool::Pending later = pool.Submit([&] { return leaf(0); });
    absl::Status status = pool.Run(10, leaf);
    status.Update(later.Wait());
    return status;
  };
  EXPECT_OK(pool.Run(10, [&](int64_t) { return pool.Run(10, branch); }));
  EXPECT_EQ(num_run, 1100);
}

TEST(WorkerPool, ServesACallerWhileAnotherHoldsAllThreads) {
  WorkerPool pool(2);
  std::latch all_held(3);
  std::latch released(1);
  std::thread other([&] {
    EXPECT_OK(pool.Run(3, [&](int64_t) {
      all_held.count_down();
      released.wait();
      return absl::OkStatus();
    }));
  });
  all_held.wait();
  int64_t num_run = 0;
  EXPECT_OK(pool.Run(100, [&](int64_t) {
    ++num_run;
    return absl::OkStatus();
  }));
  EXPECT_EQ(num_run, 100);
  released.count_down();
  other.join();
}

TEST(WorkerPool, KeepsTheCallersApart) {
  WorkerPool pool(3);
  std::vector<std::thread> callers;
  for (int64_t caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&pool, caller] {
      for (int64_t round = 0; round < 20; ++round) {
        std::atomic<int64_t> sum = 0;
        const absl::Status status = pool.Run(50, [&](int64_t index) {
          sum += index;
          return index == 49 && caller % 2 == 1 ? ErrorOf(caller)
                                                : absl::OkStatus();
        });
        EXPECT_EQ(sum, 49 * 50 / 2);
        EXPECT_EQ(status, caller % 2 == 1 ? ErrorOf(caller) : absl::OkStatus());
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(Submit, RunsBesideTheCaller) {
  WorkerPool pool(1);
  std::latch done(1);
  WorkerPool::Pending pending = pool.Submit([&] {
    done.count_down();
    return ErrorOf(7);
  });
  done.wait();
  EXPECT_THAT(pending.Wait(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("task 7")));
  EXPECT_OK(pending.Wait());
}

TEST(Submit, RunsInWaitWhenNoThreadIsFree) {
  WorkerPool pool(0);
  bool has_run = false;
  WorkerPool::Pending pending = pool.Submit([&] {
    has_run = true;
    return absl::OkStatus();
  });
  EXPECT_FALSE(has_run);
  EXPECT_OK(pending.Wait());
  EXPECT_TRUE(has_run);
}

TEST(Submit, WaitsForWhatRunsAndDropsWhatDoesNotWhenPendingGoes) {
  WorkerPool pool(1);
  std::latch begun(1);
  std::atomic<bool> has_ended = false;
  std::atomic<bool> has_begun_second = false;
  {
    const WorkerPool::Pending first = pool.Submit([&] {
      begun.count_down();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      has_ended = true;
      return absl::OkStatus();
    });
    begun.wait();
    const WorkerPool::Pending second = pool.Submit([&] {
      has_begun_second = true;
      return absl::OkStatus();
    });
  }
  EXPECT_TRUE(has_ended);
  EXPECT_FALSE(has_begun_second);
}

TEST(Submit, FreesWhatTheTaskOwnsThoughAWorkerHasYetToLookForIt) {
  WorkerPool pool(1);
  std::latch begun(1);
  std::latch released(1);
  WorkerPool::Pending busy = pool.Submit([&] {
    begun.count_down();
    released.wait();
    return absl::OkStatus();
  });
  begun.wait();
  auto owned = std::make_unique<std::shared_ptr<int>>(new int(1));
  const std::weak_ptr<int> seen = *owned;
  WorkerPool::Pending pending =
      pool.Submit([owned = std::move(owned)] { return absl::OkStatus(); });
  EXPECT_FALSE(seen.expired());
  EXPECT_OK(pending.Wait());
  EXPECT_TRUE(seen.expired());
  released.count_down();
  EXPECT_OK(busy.Wait());
}

TEST(DefaultPool, IsOneForTheProcess) {
  EXPECT_EQ(&WorkerPool::Default(), &WorkerPool::Default());
  EXPECT_OK(
      WorkerPool::Default().Run(100, [](int64_t) { return absl::OkStatus(); }));
}

}  // namespace
}  // namespace shardshift::ckpt
