// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/token_dispatch.h"

#include <algorithm>

#include "ckpt/core/status_macros.h"
#include "trainer/buffer.h"

namespace shardshift::trainer {
namespace {

std::span<const std::byte> BytesOf(const float* rows, int64_t count,
                                   int64_t width) {
  return std::as_bytes(std::span(rows, static_cast<size_t>(count * width)));
}
std::span<std::byte> BytesOf(float* rows, int64_t count, int64_t width) {
  return std::as_writable_bytes(
      std::span(rows, static_cast<size_t>(count * width)));
}

}  // namespace

TokenDispatch::TokenDispatch(const LayerContext& context,
                             const MicroBatch& batch)
    : context_(&context),
      num_samples_(batch.num_samples),
      num_all_experts_(context.model.num_experts),
      num_sources_(context.mesh.layout().expert_copy_size() /
                   context.mesh.layout().tensor),
      experts_(ExpertsOf(context.mesh.experts()->rank())) {}

absl::StatusOr<TokenDispatch> TokenDispatch::Create(
    const LayerContext& context, const MicroBatch& batch,
    std::span<const int32_t> chosen) {
  TokenDispatch dispatch(context, batch);
  Communicator& ranks = *context.mesh.experts();
  const int64_t slots =
      context.shards.positions() * context.model.moe_router_topk;
  std::vector<int32_t> mine(dispatch.num_all_experts_ * batch.num_samples, 0);
  for (int64_t i = 0; i < std::ssize(chosen); ++i) {
    ++mine[chosen[i] * batch.num_samples + i / slots];
  }
  dispatch.counts_.resize(mine.size() * ranks.size());
  SS_RETURN_IF_ERROR(
      ranks.AllGather(std::as_bytes(std::span(mine)),
                      std::as_writable_bytes(std::span(dispatch.counts_))));
  dispatch.OrderHome(chosen);
  dispatch.OrderAtExperts();
  return dispatch;
}

reshard::ExpertRange TokenDispatch::ExpertsOf(int64_t rank) const {
  const reshard::Layout& layout = context_->mesh.layout();
  return reshard::ExpertsOf(context_->model, layout,
                            rank / layout.expert_tensor_size());
}

void TokenDispatch::OrderHome(std::span<const int32_t> chosen) {
  const int64_t rank = context_->mesh.experts()->rank();
  std::vector<int64_t> next;  // by expert and sample
  int64_t row = 0;
  for (int64_t expert = 0; expert < num_all_experts_; ++expert) {
    home_starts_.push_back(row);
    for (int64_t sample = 0; sample < num_samples_; ++sample) {
      next.push_back(row);
      row += CountOf(rank, expert, sample);
    }
  }
  home_starts_.push_back(row);
  const int64_t slots =
      context_->shards.positions() * context_->model.moe_router_topk;
  home_rows_.resize(chosen.size());
  for (int64_t i = 0; i < std::ssize(chosen); ++i) {
    home_rows_[i] = next[chosen[i] * num_samples_ + i / slots]++;
  }
}

void TokenDispatch::OrderAtExperts() {
  const int64_t tensor = context_->mesh.layout().tensor;
  int64_t row = 0;
  for (int64_t expert = experts_.begin; expert < experts_.end; ++expert) {
    for (int64_t source = 0; source < num_sources_; ++source) {
      for (int64_t sample = 0; sample < num_samples_; ++sample) {
        for (int64_t t = 0; t < tensor; ++t) {
          starts_.push_back(row);
          row += CountOf(source * tensor + t, expert, sample);
        }
      }
    }
  }
  starts_.push_back(row);
}

int64_t TokenDispatch::RunOf(int64_t local_expert, int64_t source,
                             int64_t sample) const {
  return ((local_expert * num_sources_ + source) * num_samples_ + sample) *
         context_->mesh.layout().tensor;
}

reshard::Range TokenDispatch::RowsOf(int64_t local_expert) const {
  return {starts_[RunOf(local_expert, 0, 0)],
          starts_[RunOf(local_expert + 1, 0, 0)]};
}

reshard::Range TokenDispatch::RowsOf(int64_t local_expert, int64_t source,
                                     int64_t sample) const {
  const int64_t run = RunOf(local_expert, source, sample);
  return {starts_[run], starts_[run + context_->mesh.layout().tensor]};
}

int64_t TokenDispatch::TokensOf(int64_t sample, int64_t expert) const {
  const int64_t tensor = context_->mesh.layout().tensor;
  const int64_t first = context_->mesh.experts()->rank() / tensor * tensor;
  int64_t tokens = 0;
  for (int64_t t = 0; t < tensor; ++t) {
    tokens += CountOf(first + t, expert, sample);
  }
  return tokens;
}

void TokenDispatch::AddBlocksOf(int64_t rank,
                                std::vector<Block>& blocks) const {
  const int64_t tensor = context_->mesh.layout().tensor;
  const int64_t source = rank / tensor;
  for (int64_t expert = experts_.begin; expert < experts_.end; ++expert) {
    const int64_t local = expert - experts_.begin;
    for (int64_t sample = 0; sample < num_samples_; ++sample) {
      const int64_t run = RunOf(local, source, sample);
      blocks.push_back({.rank = rank,
                        .begin = starts_[run + rank % tensor],
                        .count = CountOf(rank, expert, sample)});
    }
  }
}

absl::Status TokenDispatch::Send(const float* home, float* at_experts) const {
  Communicator& ranks = *context_->mesh.experts();
  const int64_t width = context_->model.hidden_size;
  std::vector<Block> blocks;
  for (int64_t rank = 0; rank < ranks.size(); ++rank) {
    AddBlocksOf(rank, blocks);
  }
  Buffer received(num_expert_rows() * width);
  std::vector<std::span<const std::byte>> send;
  std::vector<int64_t> counts(ranks.size(), 0);
  for (const Block& block : blocks) counts[block.rank] += block.count;
  std::vector<std::span<std::byte>> receive;
  float* next = received.data();
  for (int64_t rank = 0; rank < ranks.size(); ++rank) {
    const auto [begin, end] = ExpertsOf(rank);
    send.push_back(BytesOf(home + home_starts_[begin] * width,
                           home_starts_[end] - home_starts_[begin], width));
    receive.push_back(BytesOf(next, counts[rank], width));
    next += counts[rank] * width;
  }
  SS_RETURN_IF_ERROR(ranks.AllToAllV(send, receive));
  const float* from = received.data();
  for (const Block& block : blocks) {
    std::copy_n(from, block.count * width, at_experts + block.begin * width);
    from += block.count * width;
  }
  return absl::OkStatus();
}

absl::Status TokenDispatch::Return(const float* at_experts, float* home) const {
  Communicator& ranks = *context_->mesh.experts();
  Communicator& shares = *context_->mesh.expert_tensor();
  const int64_t width = context_->model.hidden_size;
  // Of the ranks that share an expert the one of the same number as the home
  // sums up its rows and sends them: by these the rows are ordered.
  std::vector<Block> blocks;
  std::vector<int64_t> counts(ranks.size(), 0);
  for (int64_t share = 0; share < shares.size(); ++share) {
    for (int64_t rank = share; rank < ranks.size(); rank += shares.size()) {
      AddBlocksOf(rank, blocks);
    }
  }
  Buffer ordered(num_expert_rows() * width);
  float* to = ordered.data();
  int64_t begin = 0;
  int64_t end = 0;
  for (const Block& block : blocks) {
    std::copy_n(at_experts + block.begin * width, block.count * width, to);
    to += block.count * width;
    counts[block.rank] += block.count;
    const int64_t share = block.rank % shares.size();
    if (share < shares.rank()) begin += block.count;
    if (share <= shares.rank()) end += block.count;
  }
  Buffer sums((end - begin) * width);
  const int64_t leaves = context_->tensor_granularity / shares.size();
  const TreeBuffer mine = {
      {shares.rank() * leaves, (shares.rank() + 1) * leaves}, ordered.data()};
  SS_RETURN_IF_ERROR(
      shares.TreeReduceScatter({.leaves = context_->tensor_granularity,
                                .nodes = {&mine, 1},
                                .count = ordered.size()},
                               begin * width, end * width, sums.data()));
  std::vector<std::span<const std::byte>> send(ranks.size());
  std::vector<std::span<std::byte>> receive(ranks.size());
  const float* next = sums.data();
  for (int64_t rank = shares.rank(); rank < ranks.size();
       rank += shares.size()) {
    send[rank] = BytesOf(next, counts[rank], width);
    next += counts[rank] * width;
    const auto [first, last] = ExpertsOf(rank);
    receive[rank] = BytesOf(home + home_starts_[first] * width,
                            home_starts_[last] - home_starts_[first], width);
  }
  return ranks.AllToAllV(send, receive);
}

}  // namespace shardshift::trainer
