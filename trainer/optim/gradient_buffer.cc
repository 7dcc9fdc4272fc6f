// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/gradient_buffer.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "ckpt/core/status_macros.h"

namespace shardshift::trainer {

GradientBuffer::GradientBuffer(const kernels::Kernels& kernels,
                               std::vector<Entry> entries,
                               const reshard::Range& span, SampleTree tree,
                               const Blocks& blocks)
    : kernels_(kernels),
      entries_(std::move(entries)),
      span_(span),
      tree_(std::move(tree)),
      blocks_(blocks),
      num_closed_(entries_.size(), 0),
      is_summed_(entries_.size(), !blocks.are_shared_out) {
  slots_.resize(tree_.num_slots(), std::vector<float>(span.size(), 0.0F));
  for (const Entry& entry : entries_) {
    by_block_offsets_.push_back(by_block_size_);
    if (entry.by_block) by_block_size_ += entry.range.size();
  }
  block_sums_.resize(blocks.count * by_block_size_);
  if (blocks.are_shared_out) {
    group_sums_.resize(tree_.num_groups() * by_block_size_);
  }
}

void GradientBuffer::BeginBatch() {
  std::ranges::fill(num_closed_, 0);
  is_summed_.assign(entries_.size(), !blocks_.are_shared_out);
}

GradientBuffer::Target GradientBuffer::Open(int64_t entry, int64_t sample) {
  assert(!entries_[entry].by_block);
  const SampleTree::Visit& visit = tree_.At(sample);
  return {.data = Slot(visit.slot, entries_[entry].range),
          .accumulate = !visit.opens_group};
}

float* GradientBuffer::OpenBlocks(int64_t entry, int64_t sample) {
  assert(entries_[entry].by_block);
  float* sums = block_sums_.data() + blocks_.count * by_block_offsets_[entry];
  if (tree_.At(sample).opens_group) {
    std::fill_n(sums, blocks_.count * entries_[entry].range.size(), 0.0F);
  }
  return sums;
}

float* GradientBuffer::GroupSum(int64_t entry, int64_t sample) {
  assert(!entries_[entry].by_block && tree_.At(sample).closes_group);
  return Slot(tree_.At(sample).slot, entries_[entry].range);
}

float* GradientBuffer::SumOverBlocks(int64_t entry,
                                     const SampleTree::Visit& visit) {
  if (!blocks_.are_shared_out) return Slot(visit.slot, entries_[entry].range);
  return group_sums_.data() + visit.group * by_block_size_ +
         by_block_offsets_[entry];
}

void GradientBuffer::Merge(const SampleTree::Visit& visit,
                           const reshard::Range& range) {
  int64_t top = visit.slot;
  for (int64_t i = 0; i < visit.merges; ++i, --top) {
    float* left = Slot(top - 1, range);
    kernels_.add(
        {.a = left, .b = Slot(top, range), .count = range.size(), .out = left});
  }
}

void GradientBuffer::Close(int64_t entry, int64_t sample) {
  const SampleTree::Visit& visit = tree_.At(sample);
  if (!visit.closes_group) return;
  ++num_closed_[entry];
  const reshard::Range& range = entries_[entry].range;
  if (entries_[entry].by_block) {
    const float* sums =
        block_sums_.data() + blocks_.count * by_block_offsets_[entry];
    std::vector<const float*> leaves;
    for (int64_t block = 0; block < blocks_.count; ++block) {
      leaves.push_back(sums + block * range.size());
    }
    kernels::CombineLeaves(leaves, range.size(), SumOverBlocks(entry, visit));
    if (blocks_.are_shared_out) return;
  }
  Merge(visit, range);
}

absl::Status GradientBuffer::SumBlocks(Communicator& tensor) {
  std::vector<int64_t> entries;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i].by_block || is_summed_[i] || !IsVisited(i)) continue;
    entries.push_back(static_cast<int64_t>(i));
    is_summed_[i] = true;
  }
  if (entries.empty()) return absl::OkStatus();
  const auto for_each_sum = [&](auto function) {
    for (const int64_t entry : entries) {
      for (int64_t sample = 0; sample < tree_.num_samples(); ++sample) {
        const SampleTree::Visit& visit = tree_.At(sample);
        if (visit.closes_group) function(entry, visit);
      }
    }
  };
  // All in one call, side by side.
  std::vector<float> sums;
  for_each_sum([&](int64_t entry, const SampleTree::Visit& visit) {
    const float* sum = SumOverBlocks(entry, visit);
    sums.insert(sums.end(), sum, sum + entries_[entry].range.size());
  });
  SS_RETURN_IF_ERROR(tensor.TreeAllReduceInPlace(sums, blocks_.count));
  const float* next = sums.data();
  for_each_sum([&](int64_t entry, const SampleTree::Visit& visit) {
    const reshard::Range& range = entries_[entry].range;
    std::copy_n(next, range.size(), Slot(visit.slot, range));
    next += range.size();
    Merge(visit, range);
  });
  return absl::OkStatus();
}

std::vector<TreeBuffer> GradientBuffer::Nodes(
    const reshard::Range& range) const {
  std::vector<TreeBuffer> nodes;
  for (size_t slot = 0; slot < tree_.nodes().size(); ++slot) {
    nodes.push_back({.node = tree_.nodes()[slot],
                     .data = slots_[slot].data() + range.begin - span_.begin});
  }
  return nodes;
}

bool GradientBuffer::IsComplete(const reshard::Range& range) const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (reshard::Intersect(entries_[i].range, range).empty()) continue;
    if (!IsVisited(i) || (entries_[i].by_block && !is_summed_[i])) return false;
  }
  return true;
}

int64_t GradientBuffer::bytes() const {
  size_t floats = block_sums_.size() + group_sums_.size();
  for (const std::vector<float>& slot : slots_) floats += slot.size();
  return static_cast<int64_t>(floats * sizeof(float));
}

}  // namespace shardshift::trainer
