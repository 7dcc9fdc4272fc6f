// The order of work on one pipeline stage.
// Source: parallel-layout.md 3.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_PIPELINE_SCHEDULE_H_
#define SHARDSHIFT_TRAINER_PIPELINE_SCHEDULE_H_

#include <cstdint>
#include <vector>

namespace shardshift::trainer {

// A pipeline, and the batch it works on.
struct PipelineShape {
  int64_t stages = 1;
  int64_t chunks = 1;  // model chunks of each stage
  int64_t micro_batches = 1;
};

struct PipelineStep {
  enum class Kind { kForward, kBackward };
  Kind kind = Kind::kForward;
  int64_t micro_batch = 0;
  int64_t chunk = 0;  // of the stage

  bool operator==(const PipelineStep&) const = default;
};

// Each micro-batch goes forward and backward through each chunk of the stage
// once. Backwards of a chunk visit the micro-batches in ascending order,
// whatever the schedule. No order of this file can deadlock if sends are
// buffered.

// 1F1B of stages that hold one chunk (Narayanan et al. 2021): warm-up forwards,
// then one forward and one backward in turn, then the remaining backwards. At
// most min(stages - stage, micro_batches) micro-batches are alive.
std::vector<PipelineStep> OneForwardOneBackward(const PipelineShape& shape,
                                                int64_t stage);

// Sizes of the groups of consecutive micro-batches that go through a chunk
// before the next chunk has its turn: as many as there are stages, which is
// Megatron's default, or so few more that a number that the stages do not
// divide is dealt out evenly; larger groups first. Fewer micro-batches than
// stages are one group. Groups smaller than the pipeline, if there are more
// than one, could wait for each other for ever.
std::vector<int64_t> InterleavedGroups(const PipelineShape& shape);

// Interleaved 1F1B of stages that hold several chunks, Megatron's order: group
// after group, and in it chunk after chunk; backwards the same with the chunks
// reversed; 2 * (stages - stage - 1) + (chunks - 1) * (largest group) forwards
// of one chunk to warm up. At most one more pair of micro-batch and chunk is
// alive.
std::vector<PipelineStep> InterleavedOneForwardOneBackward(
    const PipelineShape& shape, int64_t stage);

// The schedule of a run: interleaved if a stage holds several chunks.
std::vector<PipelineStep> ScheduleOf(const PipelineShape& shape, int64_t stage);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_PIPELINE_SCHEDULE_H_
