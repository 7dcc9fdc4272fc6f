// One copy by several processes; threads take their part here.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/processes.h"

#include <barrier>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "reshard/exec/reshard.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::HasSubstr;

// What the members of one team share.
struct Team {
  explicit Team(int size) : barrier(size), texts(size) {}
  std::barrier<> barrier;
  std::vector<std::string> texts;
};

class TeamMember final : public Processes {
 public:
  TeamMember(Team& team, int rank) : team_(team), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(team_.texts.size()); }
  absl::StatusOr<std::vector<std::string>> AllGather(
      const std::string& mine) override {
    team_.texts[rank_] = mine;
    team_.barrier.arrive_and_wait();
    std::vector<std::string> all = team_.texts;
    team_.barrier.arrive_and_wait();
    return all;
  }

 private:
  Team& team_;
  const int rank_;
};

template <typename Work>
void RunTeam(int size, const Work& work) {
  Team team(size);
  std::vector<std::thread> threads;
  threads.reserve(size);
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&team, &work, rank] {
      TeamMember member(team, rank);
      work(member);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Agree, GivesAllTheErrorOfTheLowestRank) {
  RunTeam(4, [](Processes& processes) {
    const int rank = processes.rank();
    EXPECT_OK(Agree(processes, absl::OkStatus()));
    absl::Status mine;
    if (rank % 2 == 1) mine = absl::DataLossError(absl::StrCat("by ", rank));
    EXPECT_THAT(Agree(processes, mine),
                StatusIs(absl::StatusCode::kDataLoss, "by 1"));
    const auto all = AllGatherIfOk(processes, absl::StrCat("text ", rank));
    ASSERT_OK(all);
    EXPECT_EQ(all->at(2), "text 2");
  });
}

class TeamReshardTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const {
    return ckpt::JoinPath(directory_.path(), name);
  }
  const ckpt::TempDir directory_;
};

TEST_F(TeamReshardTest, GivesTheSameBytesByAnyNumberOfProcesses) {
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const ModelConfig model = RandomMixture(random);
    const Layout layout = RandomWideLayout(model, random);
    ASSERT_OK(
        WriteSynth(Path("source"), model, RandomWideLayout(model, random)));
    const CopyChoice choice = {.weights_only = seed % 4 == 0};
    ASSERT_OK_AND_ASSIGN(const auto source,
                         ckpt::Reader::Open(StepOf(Path("source"))));
    ASSERT_OK_AND_ASSIGN(
        const ReshardReport alone,
        ReshardCheckpoint(*source, Path("alone"), layout, {.choice = choice}));
    // Up to three more than there are parts.
    const int64_t size = seed % 2 == 0 ? alone.parts + seed / 2 - 1 : 2;
    RunTeam(static_cast<int>(size), [&](Processes& processes) {
      const absl::StatusOr<ReshardReport> report = ReshardCheckpoint(
          *source, Path("team"), layout, {.choice = choice}, processes);
      ASSERT_OK(report);
      EXPECT_OK(report->proof);
      EXPECT_EQ(report->parts, alone.parts);
      EXPECT_EQ(report->linked_parts, alone.linked_parts);
      if (processes.rank() == 0) {
        EXPECT_EQ(report->root_before, alone.root_before);
        EXPECT_EQ(report->root_after, alone.root_after);
      }
    });
    EXPECT_TRUE(Snapshot(Path("team")) == Snapshot(Path("alone")));
    for (const char* name : {"source", "alone", "team"}) {
      ASSERT_OK(ckpt::RemoveTree(Path(name)));
    }
  }
}

TEST_F(TeamReshardTest, AFaultOfOneEndsAllAndLeavesNothing) {
  const Layout layout = {.data = 4, .distributed_optimizer = true};
  ASSERT_OK(WriteSynth(Path("source"), GptModel(), {.pipeline = 2}));
  ASSERT_OK_AND_ASSIGN(const auto source,
                       ckpt::Reader::Open(StepOf(Path("source"))));
  const ckpt::Fragment& last = source->table().fragments.back();
  const std::string path =
      ckpt::JoinPath(source->directory(), ckpt::PartFileName(last.part));
  std::string bytes = ckpt::ReadFile(path);
  bytes[last.blocks.back().offset_bytes] ^= 1;
  ckpt::WriteFile(path, bytes);
  RunTeam(3, [&](Processes& processes) {
    EXPECT_THAT(ReshardCheckpoint(*source, Path("team"), layout, {}, processes)
                    .status(),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr(ckpt::PartFileName(last.part))));
  });
  ASSERT_OK_AND_ASSIGN(const auto names,
                       ckpt::ListDirectory(directory_.path()));
  EXPECT_THAT(names, ::testing::ElementsAre("source"));
}

}  // namespace
}  // namespace shardshift::reshard
