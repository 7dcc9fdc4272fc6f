// The gradients of one rank while a batch is summed, in canonical order.
// Every parameter is visited once a sample, samples ascending, in whatever
// micro-batches; SampleTree says where each sum goes.
// Memory: SampleTree::num_slots() buffers of the flat parameter buffer's size.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_OPTIM_GRADIENT_BUFFER_H_
#define SHARDSHIFT_TRAINER_OPTIM_GRADIENT_BUFFER_H_

#include <cstdint>
#include <vector>

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
    // Summed over positions: `blocks` accumulators, each a chain over the
    // (sample, position) pairs of its share of the positions, combined by a
    // tree when the group closes (invariant-numerics.md 2.3).
    bool by_block = false;
  };

  // Where the gradient of one sample goes: stored, or added to what is there.
  struct Target {
    float* data;
    bool accumulate;
  };

  GradientBuffer(const kernels::Kernels& kernels, std::vector<Entry> entries,
                 int64_t num_elements, SampleTree tree, int64_t blocks);

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

  // The summed nodes of `range`, once each of its entries has been visited for
  // every sample. Valid until the next Open.
  std::vector<TreeBuffer> Nodes(const reshard::Range& range) const;

  // Whether every entry within `range` has been visited for every sample.
  bool IsComplete(const reshard::Range& range) const;

  const SampleTree& tree() const { return tree_; }
  int64_t blocks() const { return blocks_; }
  int64_t bytes() const;

 private:
  float* Slot(int64_t slot, const reshard::Range& range) {
    return slots_[slot].data() + range.begin;
  }

  const kernels::Kernels& kernels_;
  std::vector<Entry> entries_;
  SampleTree tree_;
  int64_t blocks_;
  std::vector<std::vector<float>> slots_;
  std::vector<int64_t> block_offsets_;  // by entry, into block_sums_
  std::vector<float> block_sums_;
  std::vector<int64_t> num_visited_;  // samples of the batch, by entry
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_OPTIM_GRADIENT_BUFFER_H_
