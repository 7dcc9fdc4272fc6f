// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/gradient_buffer.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace shardshift::trainer {

GradientBuffer::GradientBuffer(const kernels::Kernels& kernels,
                               std::vector<Entry> entries, int64_t num_elements,
                               SampleTree tree, int64_t blocks)
    : kernels_(kernels),
      entries_(std::move(entries)),
      tree_(std::move(tree)),
      blocks_(blocks),
      num_visited_(entries_.size(), 0) {
  slots_.resize(tree_.num_slots(), std::vector<float>(num_elements, 0.0F));
  int64_t block_size = 0;
  for (const Entry& entry : entries_) {
    block_offsets_.push_back(block_size);
    if (entry.by_block) block_size += blocks * entry.range.size();
  }
  block_sums_.resize(block_size);
}

void GradientBuffer::BeginBatch() { std::ranges::fill(num_visited_, 0); }

GradientBuffer::Target GradientBuffer::Open(int64_t entry, int64_t sample) {
  assert(!entries_[entry].by_block);
  const SampleTree::Visit& visit = tree_.At(sample);
  return {.data = Slot(visit.slot, entries_[entry].range),
          .accumulate = !visit.opens_group};
}

float* GradientBuffer::OpenBlocks(int64_t entry, int64_t sample) {
  assert(entries_[entry].by_block);
  float* sums = block_sums_.data() + block_offsets_[entry];
  if (tree_.At(sample).opens_group) {
    std::fill_n(sums, blocks_ * entries_[entry].range.size(), 0.0F);
  }
  return sums;
}

float* GradientBuffer::GroupSum(int64_t entry, int64_t sample) {
  assert(!entries_[entry].by_block && tree_.At(sample).closes_group);
  return Slot(tree_.At(sample).slot, entries_[entry].range);
}

void GradientBuffer::Close(int64_t entry, int64_t sample) {
  ++num_visited_[entry];
  const SampleTree::Visit& visit = tree_.At(sample);
  if (!visit.closes_group) return;
  const reshard::Range& range = entries_[entry].range;
  int64_t top = visit.slot;
  if (entries_[entry].by_block) {
    const float* sums = block_sums_.data() + block_offsets_[entry];
    std::vector<const float*> leaves;
    for (int64_t block = 0; block < blocks_; ++block) {
      leaves.push_back(sums + block * range.size());
    }
    kernels::CombineLeaves(leaves, range.size(), Slot(top, range));
  }
  for (int64_t i = 0; i < visit.merges; ++i, --top) {
    float* left = Slot(top - 1, range);
    kernels_.add(
        {.a = left, .b = Slot(top, range), .count = range.size(), .out = left});
  }
}

std::vector<TreeBuffer> GradientBuffer::Nodes(
    const reshard::Range& range) const {
  std::vector<TreeBuffer> nodes;
  for (size_t slot = 0; slot < tree_.nodes().size(); ++slot) {
    nodes.push_back({.node = tree_.nodes()[slot],
                     .data = slots_[slot].data() + range.begin});
  }
  return nodes;
}

bool GradientBuffer::IsComplete(const reshard::Range& range) const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (num_visited_[i] < tree_.num_samples() &&
        !reshard::Intersect(entries_[i].range, range).empty()) {
      return false;
    }
  }
  return true;
}

int64_t GradientBuffer::bytes() const {
  size_t floats = block_sums_.size();
  for (const std::vector<float>& slot : slots_) floats += slot.size();
  return static_cast<int64_t>(floats * sizeof(float));
}

}  // namespace shardshift::trainer
