// When each stage of a pipeline would do what if all forwards of a chunk took
// one slot of time, all backwards two, and messages none; how long stages are
// idle then, and how long they were in a run.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_PIPELINE_SCHEDULE_REPORT_H_
#define SHARDSHIFT_TRAINER_PIPELINE_SCHEDULE_REPORT_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/pipeline/schedule.h"

namespace shardshift::trainer {

inline constexpr int64_t kForwardSlots = 1;
inline constexpr int64_t kBackwardSlots = 2;

// A step, which takes slots [begin, end).
struct TimedStep {
  PipelineStep step;
  int64_t begin = 0;
  int64_t end = 0;
};

using Schedules = std::vector<std::vector<PipelineStep>>;  // by stage
using Timeline = std::vector<std::vector<TimedStep>>;      // by stage

// ScheduleOf of every stage.
Schedules SchedulesOf(const PipelineShape& shape);

// Every step as early as its stage's order and the messages it needs allow.
// Errors: Internal naming the first step of each stage that waits for ever.
absl::StatusOr<Timeline> Simulate(const PipelineShape& shape,
                                  const Schedules& schedules);

// The share of slots, from the first step to the last, in which the average
// stage is idle.
double BubbleOf(const Timeline& timeline);

// What that share is by the formula for micro-batches that the stages divide:
// (P - 1) / (V * M + P - 1). Of the busy slots it is Megatron's (P - 1) / (V *
// M).
double BubbleFormula(const PipelineShape& shape);

// A row a stage, a column a slot: "F3" is the forward of micro-batch 3, "F3.1"
// that through chunk 1, B a backward, '.' idle. Broken into parts of at most
// `width` characters a line.
std::string TimelineText(const PipelineShape& shape, const Timeline& timeline,
                         int64_t width);

// How one stage spent its batches.
struct StageTimes {
  absl::Duration whole;    // all batches
  absl::Duration waiting;  // of it, for messages from other stages
};

// The share of time in which the average stage was idle. The slowest stage says
// how long all of it took: the others wait for it at the end.
double MeasuredBubble(std::span<const StageTimes> stages);

// The table, and what share is idle, before a run.
// REQUIRES: the shape's schedule does not deadlock, as those of ScheduleOf.
std::string ScheduleText(const PipelineShape& shape);

// What a run of `iterations` measured on the stages of one pipeline.
std::string MeasuredText(const PipelineShape& shape,
                         std::span<const StageTimes> stages,
                         int64_t iterations);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_PIPELINE_SCHEDULE_REPORT_H_
