// A load by all ranks: what it reads, and where it goes.
// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpointing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/io/system_calls.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "reshard/exec/synth.h"
#include "reshard/layout/content.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/logical_state.h"
#include "tests/trainer/tiny_model.h"

namespace shardshift::trainer {
namespace {

// How often each place of each file is read.
class ReadCounter : public ckpt::SystemCalls {
 public:
  using Place = std::pair<std::string, int64_t>;  // path, offset

  std::map<Place, int> counts() const { return counts_; }

  int Open(const std::string& path, int flags, mode_t mode) override {
    const std::lock_guard lock(mutex_);
    const int fd = SystemCalls::Open(path, flags, mode);
    if (fd >= 0) paths_[fd] = path;
    return fd;
  }
  ssize_t PRead(int fd, void* data, size_t num_bytes,
                int64_t offset_bytes) override {
    {
      const std::lock_guard lock(mutex_);
      ++counts_[{paths_[fd], offset_bytes}];
    }
    return SystemCalls::PRead(fd, data, num_bytes, offset_bytes);
  }

 private:
  std::mutex mutex_;
  std::map<int, std::string> paths_;
  std::map<Place, int> counts_;
};

// Each block of each part, once.
std::map<ReadCounter::Place, int> EachBlockOnce(const ckpt::Reader& reader) {
  std::map<ReadCounter::Place, int> counts;
  for (const ckpt::Fragment& fragment : reader.table().fragments) {
    for (const ckpt::Block& block : fragment.blocks) {
      counts[{
          ckpt::JoinPath(reader.directory(), ckpt::PartFileName(fragment.part)),
          block.offset_bytes}] = 1;
    }
  }
  return counts;
}

absl::StatusOr<std::unique_ptr<ckpt::Reader>> OpenSynth(
    const std::string& run_dir, const RunConfig& config,
    const reshard::Layout& layout) {
  StoredRun run;
  run.config = config;
  SS_RETURN_IF_ERROR(reshard::WriteSynthCheckpoint(
      run_dir, 1, config.model, layout, ToState(run), ToRecord(layout, 1)));
  return ckpt::Reader::Open(ckpt::JoinPath(run_dir, ckpt::StepName(1)));
}

absl::Status LoadOn(
    const RunConfig& config, const reshard::Layout& layout,
    const ckpt::Reader& reader,
    const std::function<absl::Status(Mesh&, RankModel&)>& then) {
  return OnEveryRank(
      config, layout, [&](Mesh& mesh, RankModel& model) -> absl::Status {
        SS_ASSIGN_OR_RETURN(
            const auto checkpointing,
            Checkpointing::Create(mesh, config.model, model.parameters(),
                                  model.optimizer()));
        SS_RETURN_IF_ERROR(checkpointing->Load(reader));
        return then(mesh, model);
      });
}

// B108: of ranks that hold the same, too.
TEST(Load, FetchesEachBlockOnceForAllRanks) {
  const RunConfig config = TinyLlama();
  const reshard::Layout from = {.tensor = 2, .data = 2};
  for (const reshard::Layout& to :
       {from, reshard::Layout{.tensor = 4, .pipeline = 2},
        reshard::Layout{.data = 4, .distributed_optimizer = true}}) {
    const ckpt::TempDir dir;
    ASSERT_OK_AND_ASSIGN(const auto reader,
                         OpenSynth(dir.path() + "/run", config, from));
    ReadCounter reads;
    const ckpt::ScopedSystemCalls scope(reads);
    ASSERT_OK(LoadOn(config, to, *reader,
                     [](Mesh&, RankModel&) { return absl::OkStatus(); }));
    EXPECT_EQ(reads.counts(), EachBlockOnce(*reader)) << NameOf(to);
  }
}

TEST(Load, PutsEachValueInItsPlaceOnAnotherLayout) {
  const RunConfig config = TinyGpt();
  const auto tensors = reshard::LogicalTensors(config.model);
  const ckpt::TempDir dir;
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenSynth(dir.path() + "/run", config,
                                                    {.tensor = 4, .data = 2}));
  const reshard::Layout to = {
      .tensor = 2, .pipeline = 2, .data = 2, .distributed_optimizer = true};
  ASSERT_OK(LoadOn(
      config, to, *reader, [&](Mesh& mesh, RankModel& model) -> absl::Status {
        for (int64_t role = 0; role < 3; ++role) {
          SS_ASSIGN_OR_RETURN(const LogicalValues found,
                              GatherState(config, mesh, model, role));
          int64_t wrong = 0;
          for (size_t t = 0; t < tensors.size(); ++t) {
            for (size_t i = 0; i < found[t].size(); ++i) {
              const float expected = reshard::SynthValue(
                  tensors[t].name, reshard::kOptimizerRoles[role],
                  static_cast<int64_t>(i));
              wrong += found[t][i] == expected ? 0 : 1;
            }
          }
          EXPECT_EQ(wrong, 0) << reshard::kOptimizerRoles[role];
        }
        return absl::OkStatus();
      }));
}

TEST(Load, RefusesAnotherModelOnAllRanks) {
  const ckpt::TempDir dir;
  ASSERT_OK_AND_ASSIGN(const auto reader,
                       OpenSynth(dir.path() + "/run", TinyGpt(), {}));
  std::atomic<int> refused = 0;
  EXPECT_THAT(OnEveryRank(TinyLlama(), {.tensor = 2, .data = 2},
                          [&](Mesh& mesh, RankModel& model) -> absl::Status {
                            SS_ASSIGN_OR_RETURN(
                                const auto checkpointing,
                                Checkpointing::Create(mesh, TinyLlama().model,
                                                      model.parameters(),
                                                      model.optimizer()));
                            absl::Status status = checkpointing->Load(*reader);
                            if (absl::IsFailedPrecondition(status)) ++refused;
                            return status;
                          }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::HasSubstr("layers.0.")));
  EXPECT_EQ(refused, 4);
}

// B145: with which no caller can go on by himself.
TEST(Save, B145OfOneRankAloneEndsAll) {
  const RunConfig config = TinyGpt();
  const ckpt::TempDir dir;
  const auto body = [&](Mesh& mesh, RankModel& model) -> absl::Status {
    SS_ASSIGN_OR_RETURN(
        const auto checkpointing,
        Checkpointing::Create(mesh, config.model, model.parameters(),
                              model.optimizer()));
    if (mesh.world().rank() == 0) {
      return checkpointing->Save(
          {.run_dir = dir.path() + "/run", .id = {1, "{}"}, .record = "{}"},
          checkpointing->images());
    }
    mesh.world().set_timeout(absl::Milliseconds(50));
    return mesh.world().Barrier();
  };
  EXPECT_THAT(OnEveryRank(config, {.tensor = 2}, body),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       ::testing::HasSubstr("for rank 0")));
}

}  // namespace
}  // namespace shardshift::trainer
