// The order of work on one pipeline stage.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_PIPELINE_SCHEDULE_H_
#define SHARDSHIFT_TRAINER_PIPELINE_SCHEDULE_H_

#include <cstdint>
#include <vector>

namespace shardshift::trainer {

struct PipelineStep {
  enum class Kind { kForward, kBackward };
  Kind kind = Kind::kForward;
  int64_t micro_batch = 0;

  bool operator==(const PipelineStep&) const = default;
};

// 1F1B (Narayanan et al. 2021; parallel-layout.md 3.2): warm-up forwards, then
// one forward and one backward in turn, then the remaining backwards. At most
// min(stages - stage, micro_batches) micro-batches are alive, and backwards
// visit them in ascending order on every stage.
std::vector<PipelineStep> OneForwardOneBackward(int64_t stages, int64_t stage,
                                                int64_t micro_batches);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_PIPELINE_SCHEDULE_H_
