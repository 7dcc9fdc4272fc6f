// Where the tokens of a micro-batch go: each to the ranks of the experts that
// it is routed to, and what the experts make of it back to the rank that has
// it, its home.
//
// The ranks of mesh.experts() share one copy of all experts. Each sends a row
// of H for every (token, slot) to the expert-tensor ranks of the slot's expert;
// a rank then has the tokens of its experts of all samples of these ranks,
// those of q = expert_copy_size / TP data-parallel ranks ("sources"). Orders:
//
//   at home: [expert][sample][position]
//   at the experts: [local expert][source][sample][position]
//
// A sample's tokens thus lie together at an expert, in the order of its
// positions, whatever the layout (invariant-numerics.md 5).
// Source: parallel-layout.md 6.5, where the all-to-all over expert-parallel
// ranks and the all-gather over expert-tensor ranks are two steps.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_LAYERS_TOKEN_DISPATCH_H_
#define SHARDSHIFT_TRAINER_LAYERS_TOKEN_DISPATCH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/layout/flat_buffer.h"
#include "trainer/layers/context.h"

namespace shardshift::trainer {

class TokenDispatch {
 public:
  // chosen: [r, k], the expert of each slot of each row. Collective over
  // mesh.experts(): one all-gather of counts. `context` outlives this.
  static absl::StatusOr<TokenDispatch> Create(const LayerContext& context,
                                              const MicroBatch& batch,
                                              std::span<const int32_t> chosen);

  // r * k, and where a slot's row lies at home; slot = row * k + j.
  int64_t num_home_rows() const { return std::ssize(home_rows_); }
  int64_t HomeRow(int64_t slot) const { return home_rows_[slot]; }

  // Rows at the experts of this rank.
  int64_t num_expert_rows() const { return starts_.back(); }
  int64_t num_experts() const { return experts_.end - experts_.begin; }
  int64_t num_sources() const { return num_sources_; }
  reshard::Range RowsOf(int64_t local_expert) const;
  reshard::Range RowsOf(int64_t local_expert, int64_t source,
                        int64_t sample) const;

  // How many tokens of a sample of this rank's go to an expert, counted on all
  // tensor-parallel ranks.
  int64_t TokensOf(int64_t sample, int64_t expert) const;

  // home: [num_home_rows(), H]; at_experts: [num_expert_rows(), H]. One
  // all-to-all.
  absl::Status Send(const float* home, float* at_experts) const;

  // at_experts: what this rank's leaves, Gt / expert tensor ranks, add to each
  // row; home: the sums. One reduce-scatter, unless each rank has whole
  // experts, and one all-to-all.
  absl::Status Return(const float* at_experts, float* home) const;

 private:
  // Rows of one (rank, expert, sample), which stay together.
  struct Block {
    int64_t rank = 0;   // in mesh.experts(), their home
    int64_t begin = 0;  // row at the experts
    int64_t count = 0;
  };

  TokenDispatch(const LayerContext& context, const MicroBatch& batch);
  // Of a rank of mesh.experts().
  int64_t CountOf(int64_t rank, int64_t expert, int64_t sample) const {
    return counts_[(rank * num_all_experts_ + expert) * num_samples_ + sample];
  }
  reshard::ExpertRange ExpertsOf(int64_t rank) const;
  // Of what a source's sample has at a local expert: its place in starts_.
  int64_t RunOf(int64_t local_expert, int64_t source, int64_t sample) const;
  void OrderHome(std::span<const int32_t> chosen);
  void OrderAtExperts();
  // All rows of one home, in the order in which it sends them.
  void AddBlocksOf(int64_t rank, std::vector<Block>& blocks) const;

  const LayerContext* context_;
  int64_t num_samples_;
  int64_t num_all_experts_;
  int64_t num_sources_;
  reshard::ExpertRange experts_;      // of this rank
  std::vector<int32_t> counts_;       // [ranks, experts, samples]
  std::vector<int64_t> home_rows_;    // by slot
  std::vector<int64_t> home_starts_;  // [experts + 1], of the rows at home
  // [local experts, sources, samples, tensor ranks] + the end.
  std::vector<int64_t> starts_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_LAYERS_TOKEN_DISPATCH_H_
