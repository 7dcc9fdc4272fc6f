// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/mixture.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "kernels/router.h"

namespace shardshift::trainer {
namespace {

// Where the row of each slot lies at home.
template <typename Float>
std::vector<Float*> SlotRows(const TokenDispatch& dispatch, int64_t width,
                             Float* home) {
  std::vector<Float*> rows;
  for (int64_t slot = 0; slot < dispatch.num_home_rows(); ++slot) {
    rows.push_back(home + dispatch.HomeRow(slot) * width);
  }
  return rows;
}

}  // namespace

Mixture::Mixture(LayerContext& context, const std::string& prefix)
    : context_(context),
      router_(context, absl::StrCat(prefix, "router")),
      experts_(context, absl::StrCat(prefix, "experts.")) {
  const reshard::ModelConfig& model = context.model;
  const std::string shared = absl::StrCat(prefix, "shared_experts.");
  if (model.moe_shared_expert_intermediate_size > 0) {
    shared_.emplace(context, shared, model.moe_shared_expert_intermediate_size);
  }
  if (model.moe_shared_expert_gate) {
    shared_gate_.emplace(context, absl::StrCat(shared, "output_gate"));
  }
}

int64_t Mixture::Rows(const MicroBatch& batch) const {
  return batch.num_samples * context_.shards.positions();
}

void Mixture::Accumulate(const float* a, int64_t count, float* sum) const {
  context_.kernels.add({.a = sum, .b = a, .count = count, .out = sum});
}

absl::Status Mixture::Route(const float* x, const MicroBatch& batch,
                            Cache& cache) {
  const reshard::ModelConfig& model = context_.model;
  const int64_t rows = Rows(batch);
  cache.logits = Buffer(rows * model.num_experts);
  router_.Forward(x, rows, cache.logits.data());
  cache.chosen.resize(rows * model.moe_router_topk);
  cache.weights = Buffer(rows * model.moe_router_topk);
  kernels::Route({.logits = cache.logits.data(),
                  .rows = rows,
                  .experts = model.num_experts,
                  .topk = model.moe_router_topk,
                  .over_all = model.moe_router_pre_softmax,
                  .chosen = cache.chosen.data(),
                  .weights = cache.weights.data()});
  if (context_.batch_load.is_counting) {
    for (const int32_t expert : cache.chosen) {
      ++context_.batch_load.tokens[expert];
    }
  }
  SS_ASSIGN_OR_RETURN(cache.dispatch,
                      TokenDispatch::Create(context_, batch, cache.chosen));
  return absl::OkStatus();
}

absl::Status Mixture::Forward(const float* x, const MicroBatch& batch, float* y,
                              Cache& cache) {
  if (shared_.has_value()) {
    SS_RETURN_IF_ERROR(ForwardShared(x, batch, y, cache));
  } else {
    std::fill_n(y, Rows(batch) * context_.model.hidden_size, 0.0F);
  }
  SS_RETURN_IF_ERROR(Route(x, batch, cache));
  const TokenDispatch& dispatch = *cache.dispatch;
  const int64_t width = context_.model.hidden_size;
  const int64_t topk = context_.model.moe_router_topk;
  cache.outputs = Buffer(dispatch.num_home_rows() * width);
  const std::vector<float*> home =
      SlotRows(dispatch, width, cache.outputs.data());
  for (int64_t slot = 0; slot < std::ssize(home); ++slot) {
    std::copy_n(x + slot / topk * width, width, home[slot]);
  }
  cache.experts.x = Buffer(dispatch.num_expert_rows() * width);
  SS_RETURN_IF_ERROR(
      dispatch.Send(cache.outputs.data(), cache.experts.x.data()));
  {
    Buffer at_experts(dispatch.num_expert_rows() * width);
    experts_.Forward(dispatch, cache.experts, at_experts.data());
    SS_RETURN_IF_ERROR(
        dispatch.Return(at_experts.data(), cache.outputs.data()));
  }
  context_.Round(cache.outputs.data(), cache.outputs.size());
  kernels::Combine({.outputs = home.data(),
                    .weights = cache.weights.data(),
                    .rows = Rows(batch),
                    .topk = topk,
                    .width = width,
                    .y = y});
  context_.Round(y, Rows(batch) * width);
  return absl::OkStatus();
}

absl::Status Mixture::ForwardShared(const float* x, const MicroBatch& batch,
                                    float* y, Cache& cache) {
  const int64_t rows = Rows(batch);
  const int64_t width = context_.model.hidden_size;
  const bool is_gated = shared_gate_.has_value();
  if (is_gated) cache.shared_output = Buffer(rows * width);
  SS_RETURN_IF_ERROR(shared_->Forward(
      x, batch.num_samples * context_.seq_length,
      is_gated ? cache.shared_output.data() : y, cache.shared));
  if (!is_gated) return absl::OkStatus();
  cache.gate = Buffer(rows);
  shared_gate_->Forward(x, rows, cache.gate.data());
  kernels::Gate({.x = cache.shared_output.data(),
                 .gate = cache.gate.data(),
                 .rows = rows,
                 .width = width,
                 .y = y});
  context_.Round(y, rows * width);
  return absl::OkStatus();
}

absl::Status Mixture::Backward(const float* x, const float* dy,
                               const Cache& cache, const MicroBatch& batch,
                               float* dx) {
  const TokenDispatch& dispatch = *cache.dispatch;
  const int64_t width = context_.model.hidden_size;
  Buffer d_weights(dispatch.num_home_rows());
  Buffer d_outputs(dispatch.num_home_rows() * width);
  const std::vector<const float*> outputs =
      SlotRows(dispatch, width, cache.outputs.data());
  const std::vector<float*> d_slots =
      SlotRows(dispatch, width, d_outputs.data());
  kernels::CombineBackward({.dy = dy,
                            .outputs = outputs.data(),
                            .weights = cache.weights.data(),
                            .rows = Rows(batch),
                            .topk = context_.model.moe_router_topk,
                            .width = width,
                            .doutputs = d_slots.data(),
                            .dweights = d_weights.data()});
  context_.Round(d_outputs.data(), d_outputs.size());
  BackwardRouter(x, d_weights.data(), cache, batch, dx);
  if (shared_.has_value()) {
    SS_RETURN_IF_ERROR(BackwardShared(x, dy, cache, batch, dx));
  }
  return BackwardExperts(d_outputs.data(), cache, batch, dx);
}

absl::Status Mixture::BackwardExperts(const float* d_outputs,
                                      const Cache& cache,
                                      const MicroBatch& batch, float* dx) {
  const TokenDispatch& dispatch = *cache.dispatch;
  const int64_t width = context_.model.hidden_size;
  Buffer dy(dispatch.num_expert_rows() * width);
  SS_RETURN_IF_ERROR(dispatch.Send(d_outputs, dy.data()));
  Buffer partial(dispatch.num_expert_rows() * width);
  experts_.Backward(dispatch, dy.data(), cache.experts, batch, partial.data());
  Buffer home(dispatch.num_home_rows() * width);
  SS_RETURN_IF_ERROR(dispatch.Return(partial.data(), home.data()));
  context_.Round(home.data(), home.size());
  const std::vector<float*> slots = SlotRows(dispatch, width, home.data());
  kernels::Combine({.outputs = slots.data(),
                    .rows = Rows(batch),
                    .topk = context_.model.moe_router_topk,
                    .width = width,
                    .y = dx});
  context_.Round(dx, Rows(batch) * width);
  return absl::OkStatus();
}

// The gradient is that of sums over the tokens of the batch, which are divided
// by their number in the end: a mean over samples counts S times. It is scaled
// as that of the tokens' losses is.
std::vector<double> Mixture::LoadGradient(const TokenDispatch& dispatch,
                                          int64_t sample) const {
  const MoeLoss& loss = context_.moe_loss;
  const reshard::ModelConfig& model = context_.model;
  if (loss.aux_coeff == 0) return {};
  const double factor = context_.token_gradient * loss.aux_coeff *
                        static_cast<double>(model.num_experts);
  const bool of_batch = loss.counts_whole_batch();
  const int64_t layers = model.num_expert_layers();
  const auto rows = static_cast<double>(
      of_batch ? layers * layers * context_.batch_tokens
               : model.moe_router_topk * context_.seq_length);
  std::vector<double> load;
  for (int64_t expert = 0; expert < model.num_experts; ++expert) {
    const int64_t tokens = of_batch ? context_.batch_load.tokens[expert]
                                    : dispatch.TokensOf(sample, expert);
    load.push_back(factor / rows * static_cast<double>(tokens));
  }
  return load;
}

void Mixture::BackwardRouter(const float* x, const float* dweights,
                             const Cache& cache, const MicroBatch& batch,
                             float* dx) {
  const reshard::ModelConfig& model = context_.model;
  const int64_t rows = context_.shards.positions();
  Buffer d_logits(cache.logits.size());
  for (int64_t sample = 0; sample < batch.num_samples; ++sample) {
    const std::vector<double> load = LoadGradient(*cache.dispatch, sample);
    const int64_t logits = sample * rows * model.num_experts;
    const int64_t slots = sample * rows * model.moe_router_topk;
    kernels::RouteBackward(
        {.logits = cache.logits.data() + logits,
         .rows = rows,
         .experts = model.num_experts,
         .topk = model.moe_router_topk,
         .over_all = model.moe_router_pre_softmax,
         .chosen = cache.chosen.data() + slots,
         .dweights = dweights + slots,
         .z_loss = context_.token_gradient * context_.moe_loss.z_coeff,
         .load = load.empty() ? nullptr : load.data(),
         .dlogits = d_logits.data() + logits});
  }
  router_.Backward(x, d_logits.data(), batch, dx);
}

absl::Status Mixture::BackwardShared(const float* x, const float* dy,
                                     const Cache& cache,
                                     const MicroBatch& batch, float* dx) {
  const int64_t rows = Rows(batch);
  const int64_t width = context_.model.hidden_size;
  Buffer branch(rows * width);
  Buffer gated;
  if (shared_gate_.has_value()) {
    gated = Buffer(rows * width);
    Buffer d_gate(rows);
    kernels::GateBackward({.dy = dy,
                           .x = cache.shared_output.data(),
                           .gate = cache.gate.data(),
                           .rows = rows,
                           .width = width,
                           .dx = gated.data(),
                           .dgate = d_gate.data()});
    context_.Round(gated.data(), gated.size());
    shared_gate_->Backward(x, d_gate.data(), batch, branch.data());
    Accumulate(branch.data(), branch.size(), dx);
    dy = gated.data();
  }
  SS_RETURN_IF_ERROR(
      shared_->Backward(x, dy, cache.shared, batch, branch.data()));
  Accumulate(branch.data(), branch.size(), dx);
  return absl::OkStatus();
}

}  // namespace shardshift::trainer
