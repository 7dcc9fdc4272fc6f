// All gradients of a rank. Those of experts that are shared out over several
// data-parallel ranks come from the samples of all these ranks at once, each in
// an order of its own, so they are summed in a buffer a source.
// Source: invariant-numerics.md 5.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_OPTIM_GRADIENTS_H_
#define SHARDSHIFT_TRAINER_OPTIM_GRADIENTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "trainer/comm/communicator.h"
#include "trainer/optim/gradient_buffer.h"

namespace shardshift::trainer {

class Gradients {
 public:
  // Entry i of every buffer is that of parameter i, empty where the buffer does
  // not have it. `of_experts`: what lies from `experts_begin` on, a buffer for
  // each data-parallel rank whose samples come here, ascending; none if experts
  // lie with the rest.
  Gradients(GradientBuffer shared, std::vector<GradientBuffer> of_experts,
            int64_t experts_begin);

  // Of all parameters but such experts.
  GradientBuffer& shared() { return shared_; }

  // Of experts, for the samples of the source-th data-parallel rank.
  GradientBuffer& OfExperts(int64_t source) {
    return of_experts_.empty() ? shared_ : of_experts_[source];
  }

  // As those of GradientBuffer.
  void BeginBatch();
  absl::Status SumBlocks(Communicator& tensor) {
    return shared_.SumBlocks(tensor);
  }
  std::vector<TreeBuffer> Nodes(const reshard::Range& range) const;
  bool IsComplete(const reshard::Range& range) const;
  int64_t bytes() const;

  // Leaves of the tree over the batch.
  int64_t groups() const { return shared_.tree().groups(); }

 private:
  GradientBuffer shared_;
  std::vector<GradientBuffer> of_experts_;
  int64_t experts_begin_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_OPTIM_GRADIENTS_H_
