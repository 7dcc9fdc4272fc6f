// SPDX-License-Identifier: Apache-2.0
#include "trainer/pipeline/stage.h"

#include <utility>

#include "ckpt/core/status_macros.h"
#include "reshard/layout/stages.h"
#include "trainer/pipeline/schedule.h"

namespace shardshift::trainer {
namespace {

// Messages are matched by micro-batch and direction, never by order.
int64_t ForwardTag(int64_t micro_batch) { return 2 * micro_batch; }
int64_t BackwardTag(int64_t micro_batch) { return 2 * micro_batch + 1; }

}  // namespace

Stage::Stage(LayerContext& context, std::optional<int64_t> tied_entry)
    : context_(context),
      rope_(MakeRopeTable(context.model, context.seq_length)) {
  Mesh& mesh = context.mesh;
  if (mesh.is_first_stage()) embedding_.emplace(context);
  const reshard::LayerRange range =
      reshard::LayersOfStage(context.model, mesh.layout(), mesh.at().pipeline);
  for (int64_t layer = range.begin; layer < range.end; ++layer) {
    layers_.emplace_back(context, layer, rope_);
  }
  if (mesh.is_last_stage()) head_.emplace(context, tied_entry);
}

MicroBatch Stage::Slice(const Batch& batch, int64_t micro_batch) const {
  MicroBatch slice{.first_sample = micro_batch * batch.micro_batch_size,
                   .num_samples = batch.micro_batch_size};
  if (batch.tokens.empty()) return slice;
  const int64_t at = slice.first_sample * context_.seq_length;
  const int64_t count = slice.num_samples * context_.seq_length;
  slice.tokens = std::span(batch.tokens).subspan(at, count);
  slice.labels = std::span(batch.labels).subspan(at, count);
  return slice;
}

absl::Status Stage::Forward(int64_t micro_batch, InFlight& state,
                            std::span<double> sample_losses) {
  Communicator& comm = context_.mesh.pipeline();
  const int64_t rows = state.batch.num_samples * context_.seq_length;
  Buffer x(rows * context_.model.hidden_size);
  if (embedding_.has_value()) {
    SS_RETURN_IF_ERROR(embedding_->Forward(state.batch, x.data()));
  } else {
    SS_RETURN_IF_ERROR(comm.Recv(comm.rank() - 1, ForwardTag(micro_batch),
                                 std::as_writable_bytes(x.span())));
  }
  state.layers.resize(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    Buffer y;
    SS_RETURN_IF_ERROR(
        layers_[i].Forward(std::move(x), rows, y, state.layers[i]));
    x = std::move(y);
  }
  if (!head_.has_value()) {
    return comm.Send(comm.rank() + 1, ForwardTag(micro_batch),
                     std::as_bytes(x.span()));
  }
  state.head_in = std::move(x);
  return head_->Forward(
      state.head_in.data(), state.batch, state.head,
      sample_losses.subspan(state.batch.first_sample, state.batch.num_samples));
}

absl::Status Stage::Backward(int64_t micro_batch, InFlight& state) {
  Communicator& comm = context_.mesh.pipeline();
  const int64_t rows = state.batch.num_samples * context_.seq_length;
  Buffer dx(rows * context_.model.hidden_size);
  if (head_.has_value()) {
    SS_RETURN_IF_ERROR(head_->Backward(state.head_in.data(), state.batch,
                                       state.head, dx.data()));
  } else {
    SS_RETURN_IF_ERROR(comm.Recv(comm.rank() + 1, BackwardTag(micro_batch),
                                 std::as_writable_bytes(dx.span())));
  }
  for (size_t i = layers_.size(); i-- > 0;) {
    SS_RETURN_IF_ERROR(layers_[i].Backward(state.layers[i], state.batch, dx));
  }
  if (!embedding_.has_value()) {
    return comm.Send(comm.rank() - 1, BackwardTag(micro_batch),
                     std::as_bytes(dx.span()));
  }
  embedding_->Backward(dx.data(), state.batch);
  return absl::OkStatus();
}

absl::Status Stage::RunBatch(const Batch& batch,
                             std::span<double> sample_losses) {
  const Mesh& mesh = context_.mesh;
  for (const PipelineStep& step :
       OneForwardOneBackward(mesh.layout().pipeline, mesh.at().pipeline,
                             batch.num_micro_batches())) {
    const int64_t micro_batch = step.micro_batch;
    if (step.kind == PipelineStep::Kind::kForward) {
      InFlight& state = in_flight_[micro_batch];
      state.batch = Slice(batch, micro_batch);
      SS_RETURN_IF_ERROR(Forward(micro_batch, state, sample_losses));
    } else {
      SS_RETURN_IF_ERROR(Backward(micro_batch, in_flight_.at(micro_batch)));
      in_flight_.erase(micro_batch);
    }
  }
  return absl::OkStatus();
}

}  // namespace shardshift::trainer
