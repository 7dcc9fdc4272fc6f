// SPDX-License-Identifier: Apache-2.0
#include "trainer/pipeline/schedule.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/testutil/status_matchers.h"
#include "trainer/pipeline/schedule_report.h"

namespace shardshift::trainer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = PipelineStep::Kind;

// "F0 F1 B0 B1"
std::string Text(const std::vector<PipelineStep>& steps) {
  return absl::StrJoin(
      steps, " ", [](std::string* out, const PipelineStep& step) {
        absl::StrAppend(out, step.kind == Kind::kForward ? "F" : "B",
                        step.micro_batch);
      });
}

// "F0.0 F1.0 F0.1": micro-batch and chunk.
std::string TextWithChunks(const std::vector<PipelineStep>& steps) {
  return absl::StrJoin(
      steps, " ", [](std::string* out, const PipelineStep& step) {
        absl::StrAppend(out, step.kind == Kind::kForward ? "F" : "B",
                        step.micro_batch, ".", step.chunk);
      });
}

TEST(OneForwardOneBackward, IsTheTableOfFourStagesAndEightMicroBatches) {
  const PipelineShape shape = {.stages = 4, .micro_batches = 8};
  EXPECT_EQ(Text(OneForwardOneBackward(shape, 0)),
            "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  EXPECT_EQ(Text(OneForwardOneBackward(shape, 1)),
            "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7");
  EXPECT_EQ(Text(OneForwardOneBackward(shape, 2)),
            "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7");
  EXPECT_EQ(Text(OneForwardOneBackward(shape, 3)),
            "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
}

TEST(OneForwardOneBackward, AlternatesOnASingleStage) {
  EXPECT_EQ(Text(OneForwardOneBackward({.micro_batches = 3}, 0)),
            "F0 B0 F1 B1 F2 B2");
}

TEST(OneForwardOneBackward, IsAllWarmUpWithFewerMicroBatchesThanStages) {
  const PipelineShape shape = {.stages = 4, .micro_batches = 2};
  EXPECT_EQ(Text(OneForwardOneBackward(shape, 0)), "F0 F1 B0 B1");
  EXPECT_EQ(Text(OneForwardOneBackward(shape, 1)), "F0 F1 B0 B1");
  EXPECT_EQ(Text(OneForwardOneBackward(shape, 2)), "F0 F1 B0 B1");
  EXPECT_EQ(Text(OneForwardOneBackward(shape, 3)), "F0 B0 F1 B1");
}

// Megatron's tables, by hand.
TEST(Interleaved, IsTheTableOfTwoStagesOfTwoChunks) {
  const PipelineShape shape = {.stages = 2, .chunks = 2, .micro_batches = 4};
  EXPECT_EQ(TextWithChunks(InterleavedOneForwardOneBackward(shape, 0)),
            "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 "
            "B2.1 B3.1 B2.0 B3.0");
  EXPECT_EQ(TextWithChunks(InterleavedOneForwardOneBackward(shape, 1)),
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 "
            "F3.1 B3.1 B2.0 B3.0");
}

TEST(Interleaved, WarmsUpAsMegatronOnFourStages) {
  const PipelineShape shape = {.stages = 4, .chunks = 2, .micro_batches = 8};
  const int64_t warm_up[] = {10, 8, 6, 4};
  for (int64_t stage = 0; stage < 4; ++stage) {
    const std::vector<PipelineStep> steps =
        InterleavedOneForwardOneBackward(shape, stage);
    const auto first_backward =
        std::ranges::find(steps, Kind::kBackward, &PipelineStep::kind);
    // The forward of the first pair is before it.
    EXPECT_EQ(first_backward - steps.begin(), warm_up[stage] + 1);
  }
}

TEST(Interleaved, DealsOutMicroBatchesThatTheStagesDoNotDivide) {
  const auto groups = [](int64_t stages, int64_t micro_batches) {
    return InterleavedGroups(
        {.stages = stages, .chunks = 2, .micro_batches = micro_batches});
  };
  EXPECT_THAT(groups(4, 8), ElementsAre(4, 4));
  EXPECT_THAT(groups(4, 9), ElementsAre(5, 4));
  EXPECT_THAT(groups(4, 11), ElementsAre(6, 5));
  EXPECT_THAT(groups(4, 7), ElementsAre(7));
  EXPECT_THAT(groups(4, 3), ElementsAre(3));
  EXPECT_THAT(groups(3, 16), ElementsAre(4, 3, 3, 3, 3));
}

// Every stage of pipelines of 1 to 6 stages, 1 to 4 chunks, 1 to 12
// micro-batches.
void ForEachShape(const std::function<void(const PipelineShape&)>& visit) {
  for (int64_t stages = 1; stages <= 6; ++stages) {
    for (int64_t chunks = 1; chunks <= 4; ++chunks) {
      for (int64_t micro_batches = 1; micro_batches <= 12; ++micro_batches) {
        const PipelineShape shape = {stages, chunks, micro_batches};
        SCOPED_TRACE(
            absl::StrCat("P", stages, " V", chunks, " M", micro_batches));
        visit(shape);
      }
    }
  }
}

int64_t MostAlive(const PipelineShape& shape, int64_t stage) {
  const int64_t pairs = shape.chunks * shape.micro_batches;
  if (shape.chunks == 1) return std::min(shape.stages - stage, pairs);
  const int64_t warm_up = 2 * (shape.stages - stage - 1) +
                          (shape.chunks - 1) * InterleavedGroups(shape)[0];
  return std::min(warm_up + 1, pairs);
}

// Walks the schedule of one stage.
void ExpectSound(const PipelineShape& shape, int64_t stage) {
  std::set<std::pair<int64_t, int64_t>> forwards;
  std::set<std::pair<int64_t, int64_t>> alive;
  std::map<int64_t, int64_t> next_backward;  // by chunk
  int64_t most = 0;
  for (const PipelineStep& step : ScheduleOf(shape, stage)) {
    const std::pair<int64_t, int64_t> pair = {step.micro_batch, step.chunk};
    if (step.kind == Kind::kForward) {
      EXPECT_TRUE(forwards.insert(pair).second);
      alive.insert(pair);
      most = std::max(most, std::ssize(alive));
    } else {
      EXPECT_EQ(alive.erase(pair), 1);
      EXPECT_EQ(step.micro_batch, next_backward[step.chunk]++);
    }
  }
  EXPECT_EQ(std::ssize(forwards), shape.chunks * shape.micro_batches);
  EXPECT_TRUE(alive.empty());
  for (const auto& [micro_batch, chunk] : forwards) {
    EXPECT_TRUE(0 <= chunk && chunk < shape.chunks);
    EXPECT_TRUE(0 <= micro_batch && micro_batch < shape.micro_batches);
  }
  EXPECT_EQ(most, MostAlive(shape, stage));
}

TEST(Schedule, DoesEveryForwardAndBackwardOnceInOrderWithFewAlive) {
  ForEachShape([](const PipelineShape& shape) {
    for (int64_t stage = 0; stage < shape.stages; ++stage) {
      ExpectSound(shape, stage);
    }
  });
}

TEST(Schedule, NeverDeadlocks) {
  ForEachShape([](const PipelineShape& shape) {
    ASSERT_OK_AND_ASSIGN(const Timeline timeline,
                         Simulate(shape, SchedulesOf(shape)));
    for (const std::vector<TimedStep>& steps : timeline) {
      EXPECT_EQ(std::ssize(steps), 2 * shape.chunks * shape.micro_batches);
    }
  });
}

TEST(Schedule, SimulationFindsADeadlock) {
  const PipelineShape shape = {.stages = 2, .micro_batches = 1};
  Schedules schedules = SchedulesOf(shape);
  std::ranges::reverse(schedules[0]);
  EXPECT_THAT(
      Simulate(shape, schedules),
      StatusIs(absl::StatusCode::kInternal,
               AllOf(HasSubstr("B0 of stage 0"), HasSubstr("F0 of stage 1"))));
}

TEST(Bubble, IsTheFormulaWhereTheStagesDivideTheMicroBatches) {
  ForEachShape([](const PipelineShape& shape) {
    ASSERT_OK_AND_ASSIGN(const Timeline timeline,
                         Simulate(shape, SchedulesOf(shape)));
    if (shape.chunks == 1 || shape.micro_batches % shape.stages == 0) {
      EXPECT_NEAR(BubbleOf(timeline), BubbleFormula(shape), 1e-12);
    } else {
      EXPECT_GE(BubbleOf(timeline), BubbleFormula(shape) - 1e-12);
    }
  });
}

// parallel-layout.md 3.4: idle over busy time.
TEST(Bubble, IsMegatronsShareOfTheBusyTime) {
  const auto idle_over_busy = [](const PipelineShape& shape) {
    const double bubble = BubbleOf(Simulate(shape, SchedulesOf(shape)).value());
    return bubble / (1 - bubble);
  };
  EXPECT_NEAR(idle_over_busy({4, 1, 8}), 0.375, 1e-12);
  EXPECT_NEAR(idle_over_busy({2, 2, 4}), 0.125, 1e-12);
  EXPECT_NEAR(idle_over_busy({4, 2, 8}), 0.1875, 1e-12);
}

}  // namespace
}  // namespace shardshift::trainer
