// SPDX-License-Identifier: Apache-2.0
#include "trainer/pipeline/schedule.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace shardshift::trainer {
namespace {

// "F0 F1 B0 B1"
std::string Text(const std::vector<PipelineStep>& steps) {
  return absl::StrJoin(
      steps, " ", [](std::string* out, const PipelineStep& step) {
        const bool forward = step.kind == PipelineStep::Kind::kForward;
        absl::StrAppend(out, forward ? "F" : "B", step.micro_batch);
      });
}

TEST(OneForwardOneBackward, IsTheTableOfFourStagesAndEightMicroBatches) {
  EXPECT_EQ(Text(OneForwardOneBackward(4, 0, 8)),
            "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  EXPECT_EQ(Text(OneForwardOneBackward(4, 1, 8)),
            "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7");
  EXPECT_EQ(Text(OneForwardOneBackward(4, 2, 8)),
            "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7");
  EXPECT_EQ(Text(OneForwardOneBackward(4, 3, 8)),
            "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
}

TEST(OneForwardOneBackward, AlternatesOnASingleStage) {
  EXPECT_EQ(Text(OneForwardOneBackward(1, 0, 3)), "F0 B0 F1 B1 F2 B2");
}

TEST(OneForwardOneBackward, IsAllWarmUpWithFewerMicroBatchesThanStages) {
  EXPECT_EQ(Text(OneForwardOneBackward(4, 0, 2)), "F0 F1 B0 B1");
  EXPECT_EQ(Text(OneForwardOneBackward(4, 1, 2)), "F0 F1 B0 B1");
  EXPECT_EQ(Text(OneForwardOneBackward(4, 2, 2)), "F0 F1 B0 B1");
  EXPECT_EQ(Text(OneForwardOneBackward(4, 3, 2)), "F0 B0 F1 B1");
  EXPECT_EQ(Text(OneForwardOneBackward(4, 0, 1)), "F0 B0");
}

TEST(OneForwardOneBackward, KeepsAtMostTheRemainingStagesAlive) {
  for (int64_t stages = 1; stages <= 6; ++stages) {
    for (int64_t stage = 0; stage < stages; ++stage) {
      for (int64_t count = 1; count <= 9; ++count) {
        std::set<int64_t> alive;
        size_t most = 0;
        int64_t forwards = 0;
        int64_t backwards = 0;
        for (const PipelineStep& step :
             OneForwardOneBackward(stages, stage, count)) {
          if (step.kind == PipelineStep::Kind::kForward) {
            EXPECT_EQ(step.micro_batch, forwards++);
            alive.insert(step.micro_batch);
          } else {
            EXPECT_EQ(step.micro_batch, backwards++);
            EXPECT_EQ(alive.erase(step.micro_batch), 1);
          }
          most = std::max(most, alive.size());
        }
        EXPECT_EQ(forwards, count);
        EXPECT_EQ(backwards, count);
        EXPECT_EQ(most, std::min(stages - stage, count));
      }
    }
  }
}

}  // namespace
}  // namespace shardshift::trainer
