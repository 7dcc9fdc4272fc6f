// SPDX-License-Identifier: Apache-2.0
#include "trainer/pipeline/schedule_report.h"

#include <gmock/gmock.h>

#include <array>
#include <string>
#include <vector>

#include "tests/testutil/status_matchers.h"
#include "tests/trainer/tiny_model.h"

namespace shardshift::trainer {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::string TableOf(const PipelineShape& shape, int64_t width) {
  return TimelineText(shape, Simulate(shape, SchedulesOf(shape)).value(),
                      width);
}

TEST(TimelineText, HasARowAStageAndAColumnASlot) {
  EXPECT_EQ(TableOf({.stages = 2, .micro_batches = 2}, 100),
            "stage 0  F0 F1 .  .  B0 B0 .  B1 B1\n"
            "stage 1  .  F0 B0 B0 F1 B1 B1 .  .\n");
}

TEST(TimelineText, NamesTheChunksOfInterleavedStages) {
  EXPECT_EQ(TableOf({.stages = 2, .chunks = 2, .micro_batches = 2}, 200),
            "stage 0  F0.0 F1.0 F0.1 F1.1 .    .    B0.1 B0.1 .    B1.1 B1.1 "
            "B0.0 B0.0 B1.0 B1.0\n"
            "stage 1  .    F0.0 F1.0 F0.1 B0.1 B0.1 F1.1 B1.1 B1.1 B0.0 B0.0 "
            "B1.0 B1.0 .    .\n");
}

TEST(TimelineText, BreaksLongTablesIntoParts) {
  const PipelineShape shape = {.stages = 2, .micro_batches = 2};
  EXPECT_EQ(TableOf(shape, 24),
            "slots 0 to 4\n"
            "stage 0  F0 F1 .  .  B0\n"
            "stage 1  .  F0 B0 B0 F1\n"
            "slots 5 to 8\n"
            "stage 0  B0 .  B1 B1\n"
            "stage 1  B1 B1 .  .\n");
}

TEST(MeasuredBubble, CountsWaitsAndTheTimeAfterTheLastStep) {
  const std::array<StageTimes, 2> stages = {
      StageTimes{.whole = absl::Seconds(10), .waiting = absl::Seconds(2)},
      StageTimes{.whole = absl::Seconds(8), .waiting = absl::Seconds(1)}};
  // Busy 8 and 7 of 10 each.
  EXPECT_DOUBLE_EQ(MeasuredBubble(stages), 0.25);
}

TEST(MeasuredBubble, IsNothingBeforeTheFirstBatch) {
  EXPECT_EQ(MeasuredBubble(std::array<StageTimes, 2>()), 0);
}

TEST(ScheduleText, GivesTheBubbleBesideTheFormula) {
  EXPECT_THAT(ScheduleText({.stages = 4, .micro_batches = 8}),
              HasSubstr("bubble: 0.2727 of 33 slots (forward 1, backward 2); "
                        "(P-1)/(M+P-1) is 0.2727"));
  EXPECT_THAT(ScheduleText({.stages = 2, .chunks = 2, .micro_batches = 4}),
              HasSubstr("(P-1)/(V*M+P-1) is 0.1111"));
}

TEST(ScheduleReport, OfARunIsTheScheduleAndThenWhatWasMeasured) {
  TrainOptions run =
      MockRun(TinyGpt(), {.pipeline = 2, .data = 2, .virtual_stages = 2}, 2);
  std::vector<std::string> texts;
  run.report_schedule = [&texts](const std::string& text) {
    texts.push_back(text);
  };
  ASSERT_OK(TrainAndLog(run).status());
  ASSERT_EQ(texts.size(), 2);
  EXPECT_THAT(texts[0],
              HasSubstr("2 stages (P) x 2 chunks (V), 8 micro-batches "
                        "(M), interleaved 1F1B"));
  EXPECT_THAT(texts[1],
              ContainsRegex("stage 1: waited 0\\.[0-9]* s for other "
                            "stages in [0-9.]* s\n"
                            "bubble measured over 2 iterations: 0\\.[0-9]*; "
                            "\\(P-1\\)/\\(V\\*M\\+P-1\\) is 0.0588"));
}

}  // namespace
}  // namespace shardshift::trainer
