// SPDX-License-Identifier: Apache-2.0
#include "trainer/pipeline/schedule.h"

#include <algorithm>
#include <cstddef>

namespace shardshift::trainer {
namespace {

using Kind = PipelineStep::Kind;

// `order` forwards, each but the first `warm_up` followed by the next of as
// many backwards, and the remaining backwards. A backward follows the order of
// the forwards with the chunks reversed.
std::vector<PipelineStep> Alternate(const std::vector<PipelineStep>& order,
                                    size_t warm_up, int64_t chunks) {
  std::vector<PipelineStep> steps;
  steps.reserve(2 * order.size());
  size_t next_backward = 0;
  const auto append_backward = [&] {
    const PipelineStep& as = order[next_backward++];
    steps.push_back({Kind::kBackward, as.micro_batch, chunks - 1 - as.chunk});
  };
  for (size_t forward = 0; forward < order.size(); ++forward) {
    steps.push_back(order[forward]);
    if (forward >= warm_up) append_backward();
  }
  while (next_backward < order.size()) append_backward();
  return steps;
}

}  // namespace

std::vector<PipelineStep> OneForwardOneBackward(const PipelineShape& shape,
                                                int64_t stage) {
  std::vector<PipelineStep> order;
  for (int64_t i = 0; i < shape.micro_batches; ++i) {
    order.push_back({Kind::kForward, i, 0});
  }
  return Alternate(order, shape.stages - stage - 1, 1);
}

std::vector<int64_t> InterleavedGroups(const PipelineShape& shape) {
  const int64_t count =
      std::max<int64_t>(1, shape.micro_batches / shape.stages);
  const int64_t larger = shape.micro_batches % count;
  std::vector<int64_t> groups(count, shape.micro_batches / count);
  for (int64_t i = 0; i < larger; ++i) ++groups[i];
  return groups;
}

std::vector<PipelineStep> InterleavedOneForwardOneBackward(
    const PipelineShape& shape, int64_t stage) {
  const std::vector<int64_t> groups = InterleavedGroups(shape);
  std::vector<PipelineStep> order;
  int64_t first = 0;
  for (const int64_t size : groups) {
    for (int64_t chunk = 0; chunk < shape.chunks; ++chunk) {
      for (int64_t i = first; i < first + size; ++i) {
        order.push_back({Kind::kForward, i, chunk});
      }
    }
    first += size;
  }
  const int64_t warm_up =
      2 * (shape.stages - stage - 1) + (shape.chunks - 1) * groups.front();
  return Alternate(order, warm_up, shape.chunks);
}

std::vector<PipelineStep> ScheduleOf(const PipelineShape& shape,
                                     int64_t stage) {
  return shape.chunks == 1 ? OneForwardOneBackward(shape, stage)
                           : InterleavedOneForwardOneBackward(shape, stage);
}

}  // namespace shardshift::trainer
