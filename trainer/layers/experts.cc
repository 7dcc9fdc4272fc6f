// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/experts.h"

#include "absl/strings/str_cat.h"
#include "trainer/layers/linear.h"

namespace shardshift::trainer {

Experts::Experts(LayerContext& context, const std::string& prefix)
    : context_(context),
      activation_(context),
      width_(context.model.moe_ffn_hidden_size /
             context.mesh.layout().expert_tensor_size()) {
  const auto find = [&](int64_t expert, const char* weight) {
    return context.parameters.Find(absl::StrCat(prefix, expert, weight))
        .value();
  };
  const auto [begin, end] = reshard::ExpertsOf(
      context.model, context.mesh.layout(), context.mesh.expert_at().expert);
  for (int64_t expert = begin; expert < end; ++expert) {
    experts_.push_back({.fc1 = find(expert, ".fc1.weight"),
                        .fc2 = find(expert, ".fc2.weight")});
  }
}

int64_t Experts::leaves() const {
  return context_.tensor_granularity /
         context_.mesh.layout().expert_tensor_size();
}

void Experts::Forward(const TokenDispatch& dispatch, Cache& cache,
                      float* y) const {
  const int64_t hidden = context_.model.hidden_size;
  const int64_t fc1_width = activation_.parts() * width_;
  cache.fc1 = Buffer(dispatch.num_expert_rows() * fc1_width);
  cache.activated = Buffer(dispatch.num_expert_rows() * width_);
  for (int64_t e = 0; e < std::ssize(experts_); ++e) {
    const reshard::Range rows = dispatch.RowsOf(e);
    float* fc1 = cache.fc1.data() + rows.begin * fc1_width;
    float* activated = cache.activated.data() + rows.begin * width_;
    MultiplyLinear(
        context_.kernels, {.rows = rows.size(), .in = hidden, .out = fc1_width},
        cache.x.data() + rows.begin * hidden,
        context_.parameters.data(experts_[e].fc1), /*leaves=*/1, fc1);
    context_.Round(fc1, rows.size() * fc1_width);
    activation_.Forward(fc1, rows.size(), width_, activated);
    MultiplyLinear(context_.kernels,
                   {.rows = rows.size(), .in = width_, .out = hidden},
                   activated, context_.parameters.data(experts_[e].fc2),
                   leaves(), y + rows.begin * hidden);
  }
}

void Experts::AddGradients(const TokenDispatch& dispatch, int64_t local_expert,
                           int64_t parameter, const float* x, int64_t in,
                           const float* dy, int64_t out,
                           const MicroBatch& batch) {
  for (int64_t source = 0; source < dispatch.num_sources(); ++source) {
    GradientBuffer& gradients = context_.all_gradients.OfExperts(source);
    for (int64_t i = 0; i < batch.num_samples; ++i) {
      const int64_t sample = batch.first_sample + i;
      const auto target = gradients.Open(parameter, sample);
      const reshard::Range rows = dispatch.RowsOf(local_expert, source, i);
      // A sample without tokens here adds nothing, not even a zero.
      if (!rows.empty() || !target.accumulate) {
        MultiplyLinearGradient(context_.kernels,
                               {.rows = rows.size(), .in = in, .out = out},
                               dy + rows.begin * out, x + rows.begin * in,
                               target.accumulate, target.data);
      }
      gradients.Close(parameter, sample);
    }
  }
}

void Experts::Backward(const TokenDispatch& dispatch, const float* dy,
                       const Cache& cache, const MicroBatch& batch, float* dx) {
  const int64_t hidden = context_.model.hidden_size;
  const int64_t fc1_width = activation_.parts() * width_;
  Buffer d_fc1(dispatch.num_expert_rows() * fc1_width);
  for (int64_t e = 0; e < std::ssize(experts_); ++e) {
    const reshard::Range rows = dispatch.RowsOf(e);
    const float* fc1 = cache.fc1.data() + rows.begin * fc1_width;
    Buffer d_activated(rows.size() * width_);
    AddGradients(dispatch, e, experts_[e].fc2, cache.activated.data(), width_,
                 dy, hidden, batch);
    MultiplyLinearBackward(
        context_.kernels, {.rows = rows.size(), .in = width_, .out = hidden},
        dy + rows.begin * hidden, context_.parameters.data(experts_[e].fc2),
        /*leaves=*/1, /*parts=*/1, d_activated.data());
    context_.Round(d_activated.data(), d_activated.size());
    float* d_rows = d_fc1.data() + rows.begin * fc1_width;
    activation_.Backward(d_activated.data(), fc1, rows.size(), width_, d_rows);
    AddGradients(dispatch, e, experts_[e].fc1, cache.x.data(), hidden,
                 d_fc1.data(), fc1_width, batch);
    MultiplyLinearBackward(
        context_.kernels, {.rows = rows.size(), .in = hidden, .out = fc1_width},
        d_rows, context_.parameters.data(experts_[e].fc1), leaves(),
        activation_.parts(), dx + rows.begin * hidden);
  }
}

}  // namespace shardshift::trainer
