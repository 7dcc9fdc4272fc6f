// A save in the background: what it holds, and how its end is told.
// SPDX-License-Identifier: Apache-2.0
#include "trainer/async_save.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/system_calls.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/layout/content.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/logical_state.h"
#include "tests/trainer/tiny_model.h"
#include "trainer/checkpointing.h"

namespace shardshift::trainer {
namespace {

using ::testing::HasSubstr;

const reshard::Layout kLayout = {
    .tensor = 2, .pipeline = 1, .data = 2, .distributed_optimizer = true};

// A disk that makes no part file until it is released.
class HeldDisk : public ckpt::SystemCalls {
 public:
  void Release() {
    const std::lock_guard lock(mutex_);
    is_released_ = true;
    released_.notify_all();
  }

  int Open(const std::string& path, int flags, mode_t mode) override {
    if (absl::StrContains(path, "part-")) {
      std::unique_lock lock(mutex_);
      released_.wait(lock, [this] { return is_released_; });
    }
    return SystemCalls::Open(path, flags, mode);
  }

 private:
  std::mutex mutex_;
  std::condition_variable released_;
  bool is_released_ = false;
};

// Each element of each tensor and role has a value of its own.
LogicalValues ValuesOf(const RunConfig& config, int64_t role, float first) {
  LogicalValues values;
  float next = first + 1e5F * static_cast<float>(role);
  for (const reshard::LogicalTensor& tensor :
       reshard::LogicalTensors(config.model)) {
    std::vector<float>& of = values.emplace_back();
    for (int64_t i = ckpt::NumElements(ckpt::WholeBox(tensor.shape)); i > 0;
         --i) {
      of.push_back(next++);
    }
  }
  return values;
}

absl::Status SetAll(const RunConfig& config, RankModel& model, float first) {
  for (int64_t role = 0; role < 3; ++role) {
    SS_RETURN_IF_ERROR(
        SetState(ValuesOf(config, role, first), config, model, role));
  }
  return absl::OkStatus();
}

SaveRequest RequestOf(const RunConfig& config, const std::string& run_dir,
                      int64_t step) {
  StoredRun run;
  run.config = config;
  run.progress.step = step;
  return {.run_dir = run_dir,
          .id = {step, reshard::StateText(ToState(run))},
          .record = reshard::StateText(ToRecord(kLayout, 1))};
}

// Elements of a checkpoint that are not those of SetAll.
int64_t WrongElements(const RunConfig& config, const ckpt::Reader& reader,
                      float first) {
  const auto tensors = reshard::LogicalTensors(config.model);
  int64_t wrong = 0;
  for (int64_t role = 0; role < 3; ++role) {
    const LogicalValues expected = ValuesOf(config, role, first);
    for (size_t t = 0; t < tensors.size(); ++t) {
      const auto index =
          reader.FindTensor(tensors[t].name, reshard::kOptimizerRoles[role]);
      std::vector<float> found(expected[t].size());
      if (!index.ok() ||
          !reader
               .ReadTensor(*index, ckpt::WholeBox(tensors[t].shape),
                           reinterpret_cast<std::byte*>(found.data()))
               .ok()) {
        return -1;
      }
      for (size_t i = 0; i < found.size(); ++i) {
        wrong += found[i] == expected[t][i] ? 0 : 1;
      }
    }
  }
  return wrong;
}

// Runs `body` on all ranks with what they need to save.
absl::Status WithSaves(
    const RunConfig& config,
    const std::function<absl::Status(Mesh&, RankModel&, AsyncSave&)>& body) {
  return OnEveryRank(
      config, kLayout, [&](Mesh& mesh, RankModel& model) -> absl::Status {
        SS_ASSIGN_OR_RETURN(
            const auto checkpointing,
            Checkpointing::Create(mesh, config.model, model.parameters(),
                                  model.optimizer()));
        SS_ASSIGN_OR_RETURN(const auto save, AsyncSave::Create(*checkpointing));
        return body(mesh, model, *save);
      });
}

// B88: training changes everything before the first byte is written.
TEST(AsyncSave, HoldsTheValuesOfTheSnapshot) {
  const RunConfig config = TinyLlama();
  const ckpt::TempDir dir;
  HeldDisk disk;
  const ckpt::ScopedSystemCalls scope(disk);
  ASSERT_OK(WithSaves(
      config,
      [&](Mesh& mesh, RankModel& model, AsyncSave& save) -> absl::Status {
        SS_RETURN_IF_ERROR(SetAll(config, model, 1));
        save.Begin(RequestOf(config, dir.path(), 7));
        SS_RETURN_IF_ERROR(SetAll(config, model, 5e6));
        SS_RETURN_IF_ERROR(mesh.world().Barrier());
        disk.Release();
        return save.Finish().status();
      }));
  ASSERT_OK_AND_ASSIGN(const auto reader,
                       ckpt::Reader::Open(dir.path() + "/step-00000007"));
  EXPECT_EQ(WrongElements(config, *reader, 1), 0);
}

TEST(AsyncSave, ReusesItsMemoryForTheNextSave) {
  const RunConfig config = TinyGpt();
  const ckpt::TempDir dir;
  ASSERT_OK(WithSaves(
      config, [&](Mesh&, RankModel& model, AsyncSave& save) -> absl::Status {
        for (const int64_t step : {1, 2}) {
          SS_RETURN_IF_ERROR(
              SetAll(config, model, 1000 * static_cast<float>(step)));
          save.Begin(RequestOf(config, dir.path(), step));
          SS_ASSIGN_OR_RETURN(const AsyncSave::Report report, save.Finish());
          EXPECT_EQ(report.step, step);
          EXPECT_GE(report.elapsed, report.stall);
        }
        return absl::OkStatus();
      }));
  for (const int64_t step : {1, 2}) {
    ASSERT_OK_AND_ASSIGN(
        const auto reader,
        ckpt::Reader::Open(dir.path() + "/" + ckpt::StepName(step)));
    EXPECT_EQ(WrongElements(config, *reader, 1000 * static_cast<float>(step)),
              0);
  }
}

TEST(AsyncSave, HasEndedOnAllRanksOrOnNone) {
  const RunConfig config = TinyGpt();
  const ckpt::TempDir dir;
  HeldDisk disk;
  const ckpt::ScopedSystemCalls scope(disk);
  ASSERT_OK(WithSaves(
      config,
      [&](Mesh& mesh, RankModel& model, AsyncSave& save) -> absl::Status {
        EXPECT_FALSE(save.in_flight());
        SS_RETURN_IF_ERROR(SetAll(config, model, 1));
        save.Begin(RequestOf(config, dir.path(), 1));
        EXPECT_TRUE(save.in_flight());
        SS_ASSIGN_OR_RETURN(bool has_ended, save.HasEnded(mesh.world()));
        EXPECT_FALSE(has_ended);
        disk.Release();
        while (!has_ended) {
          SS_ASSIGN_OR_RETURN(has_ended, save.HasEnded(mesh.world()));
        }
        SS_RETURN_IF_ERROR(save.Finish().status());
        EXPECT_FALSE(save.in_flight());
        return absl::OkStatus();
      }));
}

// B90: before the other ranks have written anything.
TEST(AsyncSave, TellsAllRanksOfAFailureBeforeTheOthersEnd) {
  class OneFails : public HeldDisk {
   public:
    int Open(const std::string& path, int flags, mode_t mode) override {
      if (!absl::StrContains(path, "part-00001")) {
        return HeldDisk::Open(path, flags, mode);
      }
      errno = EROFS;
      return -1;
    }
  };
  const RunConfig config = TinyGpt();
  const ckpt::TempDir dir;
  OneFails disk;
  const ckpt::ScopedSystemCalls scope(disk);
  const absl::Status status = WithSaves(
      config,
      [&](Mesh& mesh, RankModel& model, AsyncSave& save) -> absl::Status {
        SS_RETURN_IF_ERROR(SetAll(config, model, 1));
        save.Begin(RequestOf(config, dir.path(), 1));
        bool has_ended = false;
        while (!has_ended) {
          SS_ASSIGN_OR_RETURN(has_ended, save.HasEnded(mesh.world()));
        }
        disk.Release();
        absl::Status failure = save.Finish().status();
        EXPECT_THAT(failure, StatusIs(absl::StatusCode::kPermissionDenied,
                                      HasSubstr("rank 1: ")));
        return failure;
      });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kPermissionDenied,
                               HasSubstr("part-00001")));
  EXPECT_THAT(ckpt::ResolveCheckpoint(dir.path()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("")));
}

// B150: a rank that waits for the disks of the others never gives up.
TEST(AsyncSave, HasNoTimeout) {
  ASSERT_OK(OnEveryRank(TinyGpt(), kLayout, [](Mesh& mesh, RankModel&) {
    EXPECT_EQ(mesh.files().timeout(), absl::InfiniteDuration());
    EXPECT_LT(mesh.world().timeout(), absl::InfiniteDuration());
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace shardshift::trainer
