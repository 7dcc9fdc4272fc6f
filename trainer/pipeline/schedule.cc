// SPDX-License-Identifier: Apache-2.0
#include "trainer/pipeline/schedule.h"

#include <algorithm>

namespace shardshift::trainer {

std::vector<PipelineStep> OneForwardOneBackward(int64_t stages, int64_t stage,
                                                int64_t micro_batches) {
  const int64_t warm_up = std::min(stages - stage - 1, micro_batches);
  std::vector<PipelineStep> steps;
  int64_t backward = 0;
  for (int64_t forward = 0; forward < micro_batches; ++forward) {
    steps.push_back({PipelineStep::Kind::kForward, forward});
    if (forward >= warm_up) {
      steps.push_back({PipelineStep::Kind::kBackward, backward++});
    }
  }
  while (backward < micro_batches) {
    steps.push_back({PipelineStep::Kind::kBackward, backward++});
  }
  return steps;
}

}  // namespace shardshift::trainer
