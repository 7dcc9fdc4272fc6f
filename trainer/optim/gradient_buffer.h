// The gradients of one rank while a batch is summed, in canonical order.
// Every parameter is visited once a sample, samples ascending, in whatever
// micro-batches; SampleTree says where each sum goes.
// Memory: SampleTree::num_slots() buffers of the flat parameter buffer's size.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_OPTIM_GRADIENT_BUFFER_H_
#define SHARDSHIFT_TRAINER_OPTIM_GRADIENT_BUFFER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/kernels.h"
#include "reshard/layout/flat_buffer.h"
#include "trainer/comm/communicator.h"
#include "trainer/optim/sample_tree.h"

namespace shardshift::trainer {

class GradientBuffer {
 public:
  // A stretch of the buffer that is summed on its own: the gradient of one
  // parameter, or of one of two uses of it.
  struct Entry {
    reshard::Range range;
    // Summed over positions: an accumulator a block of them, each a chain over
    // the (sample, position) pairs of its block, combined by a tree when the
    // group closes (invariant-numerics.md 2.3).
    bool by_block = false;
  };

  // The blocks of positions that this rank sums over.
  struct Blocks {
    int64_t count = 0;
    // Whether the tensor-parallel peers have as many others each. The sums of
    // the groups are then kept apart until SumBlocks, as blocks come before
    // groups in the tree.
    bool are_shared_out = false;
  };

  // Where the gradient of one sample goes: stored, or added to what is there.
  struct Target {
    float* data;
    bool accumulate;
  };

  // `span` covers the ranges of all entries. An entry may be empty.
  GradientBuffer(const kernels::Kernels& kernels, std::vector<Entry> entries,
                 const reshard::Range& span, SampleTree tree,
                 const Blocks& blocks);

  // Before the first visit of a batch.
  void BeginBatch();

  // For entries not by_block. `sample` counts from the rank's first of the
  // batch.
  Target Open(int64_t entry, int64_t sample);

  // For entries by_block: the [blocks, size] accumulators, zero where the
  // sample opens a group, to go on with.
  float* OpenBlocks(int64_t entry, int64_t sample);

  // For entries not by_block that are summed elsewhere: where the sum over a
  // group goes. REQUIRES: `sample` is the last of its group. Close follows.
  float* GroupSum(int64_t entry, int64_t sample);

  // Ends the visit of `sample`.
  void Close(int64_t entry, int64_t sample);

  // Adds up what the ranks of `tensor` have of those entries by_block that have
  // been visited for every sample. One all-reduce if the blocks are shared out
  // and there are any that it was not called for before, else none.
  absl::Status SumBlocks(Communicator& tensor);

  // The summed nodes of `range`, once each of its entries has been visited for
  // every sample, and SumBlocks has been called. Valid until the next Open.
  std::vector<TreeBuffer> Nodes(const reshard::Range& range) const;

  // Whether that holds for every entry within `range`.
  bool IsComplete(const reshard::Range& range) const;

  const SampleTree& tree() const { return tree_; }
  int64_t bytes() const;

 private:
  bool IsVisited(size_t entry) const {
    return num_closed_[entry] == tree_.num_groups();
  }
  // Where the sum over a group's blocks goes.
  float* SumOverBlocks(int64_t entry, const SampleTree::Visit& visit);
  void Merge(const SampleTree::Visit& visit, const reshard::Range& range);
  float* Slot(int64_t slot, const reshard::Range& range) {
    return slots_[slot].data() + range.begin - span_.begin;
  }

  const kernels::Kernels& kernels_;
  std::vector<Entry> entries_;
  reshard::Range span_;
  SampleTree tree_;
  Blocks blocks_;
  std::vector<std::vector<float>> slots_;
  // Elements of all entries by_block, and of those before each entry.
  int64_t by_block_size_ = 0;
  std::vector<int64_t> by_block_offsets_;
  std::vector<float> block_sums_;    // entry after entry, [count, size] each
  std::vector<float> group_sums_;    // [groups, by_block_size_], if shared out
  std::vector<int64_t> num_closed_;  // groups of the batch, by entry
  std::vector<bool> is_summed_;      // over the ranks, by entry
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_OPTIM_GRADIENT_BUFFER_H_
