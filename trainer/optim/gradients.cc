// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/gradients.h"

#include <algorithm>
#include <utility>

namespace shardshift::trainer {

Gradients::Gradients(GradientBuffer shared,
                     std::vector<GradientBuffer> of_experts,
                     int64_t experts_begin)
    : shared_(std::move(shared)),
      of_experts_(std::move(of_experts)),
      experts_begin_(experts_begin) {}

void Gradients::BeginBatch() {
  shared_.BeginBatch();
  for (GradientBuffer& buffer : of_experts_) buffer.BeginBatch();
}

std::vector<TreeBuffer> Gradients::Nodes(const reshard::Range& range) const {
  if (of_experts_.empty() || range.begin < experts_begin_) {
    return shared_.Nodes(range);
  }
  std::vector<TreeBuffer> nodes;
  for (const GradientBuffer& buffer : of_experts_) {
    const std::vector<TreeBuffer> part = buffer.Nodes(range);
    nodes.insert(nodes.end(), part.begin(), part.end());
  }
  return nodes;
}

bool Gradients::IsComplete(const reshard::Range& range) const {
  if (of_experts_.empty() || range.begin < experts_begin_) {
    return shared_.IsComplete(range);
  }
  return std::ranges::all_of(of_experts_, [&](const GradientBuffer& buffer) {
    return buffer.IsComplete(range);
  });
}

int64_t Gradients::bytes() const {
  int64_t bytes = shared_.bytes();
  for (const GradientBuffer& buffer : of_experts_) bytes += buffer.bytes();
  return bytes;
}

}  // namespace shardshift::trainer
