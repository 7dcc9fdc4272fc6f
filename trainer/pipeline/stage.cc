// SPDX-License-Identifier: Apache-2.0
#include "trainer/pipeline/stage.h"

#include "absl/time/clock.h"
#include "ckpt/core/status_macros.h"
#include "reshard/layout/stages.h"

namespace shardshift::trainer {

Stage::Stage(LayerContext& context, std::optional<int64_t> tied_entry)
    : context_(context),
      rope_(MakeRopeTable(context.model, context.seq_length)) {
  const Mesh& mesh = context.mesh;
  const std::vector<reshard::LayerRange> layers = reshard::LayersOfChunksOn(
      context.model, mesh.layout(), mesh.at().pipeline);
  for (size_t i = 0; i < layers.size(); ++i) {
    chunks_.emplace_back(
        context,
        ModelChunk::Role{
            .layers = layers[i],
            .has_embedding = i == 0 && mesh.is_first_stage(),
            .has_head = i == layers.size() - 1 && mesh.is_last_stage()},
        rope_, tied_entry);
  }
}

MicroBatch Stage::Slice(const Batch& batch, int64_t micro_batch) const {
  const int64_t first = micro_batch * batch.micro_batch_size;
  MicroBatch slice{.first_sample = first,
                   .number_in_run = batch.number_in_run + first,
                   .num_samples = batch.micro_batch_size};
  if (batch.tokens.empty()) return slice;
  const int64_t at = slice.first_sample * context_.seq_length;
  const int64_t count = slice.num_samples * context_.seq_length;
  slice.tokens = std::span(batch.tokens).subspan(at, count);
  slice.labels = std::span(batch.labels).subspan(at, count);
  return slice;
}

Buffer Stage::MakeActivation(const MicroBatch& batch) const {
  return Buffer(batch.num_samples * context_.shards.positions() *
                context_.model.hidden_size);
}

int64_t Stage::Tag(const PipelineStep& step, int64_t receiver) const {
  const int64_t backward = step.kind == PipelineStep::Kind::kBackward ? 1 : 0;
  const int64_t chunks = std::ssize(chunks_) * context_.mesh.layout().pipeline;
  return 2 * (step.micro_batch * chunks + receiver) + backward;
}

absl::Status Stage::Send(const PipelineStep& step, const Buffer& data) {
  Communicator& comm = context_.mesh.pipeline();
  const int64_t mine = step.chunk * comm.size() + comm.rank();
  const int64_t receiver =
      step.kind == PipelineStep::Kind::kForward ? mine + 1 : mine - 1;
  return comm.Send(static_cast<int>(receiver % comm.size()),
                   Tag(step, receiver), std::as_bytes(data.span()));
}

absl::Status Stage::Receive(const PipelineStep& step, Buffer& data) {
  const absl::Time begin = absl::Now();
  Communicator& comm = context_.mesh.pipeline();
  const int64_t mine = step.chunk * comm.size() + comm.rank();
  const int64_t sender =
      step.kind == PipelineStep::Kind::kForward ? mine - 1 : mine + 1;
  const absl::Status status =
      comm.Recv(static_cast<int>(sender % comm.size()), Tag(step, mine),
                std::as_writable_bytes(data.span()));
  times_.waiting += absl::Now() - begin;
  return status;
}

absl::Status Stage::Forward(const PipelineStep& step, ModelChunk::Cache& cache,
                            std::span<double> sample_losses) {
  ModelChunk& chunk = chunks_[step.chunk];
  Buffer x = MakeActivation(cache.batch);
  if (!chunk.has_embedding()) SS_RETURN_IF_ERROR(Receive(step, x));
  SS_RETURN_IF_ERROR(
      chunk.Forward(x, cache,
                    sample_losses.subspan(cache.batch.first_sample,
                                          cache.batch.num_samples)));
  return chunk.has_head() ? absl::OkStatus() : Send(step, x);
}

absl::Status Stage::Backward(const PipelineStep& step,
                             ModelChunk::Cache& cache) {
  ModelChunk& chunk = chunks_[step.chunk];
  Buffer dx = MakeActivation(cache.batch);
  if (!chunk.has_head()) SS_RETURN_IF_ERROR(Receive(step, dx));
  SS_RETURN_IF_ERROR(chunk.Backward(dx, cache));
  return chunk.has_embedding() ? absl::OkStatus() : Send(step, dx);
}

std::vector<PipelineStep> Stage::ScheduleFor(const Batch& batch) const {
  const Mesh& mesh = context_.mesh;
  return ScheduleOf({.stages = mesh.layout().pipeline,
                     .chunks = std::ssize(chunks_),
                     .micro_batches = batch.num_micro_batches()},
                    mesh.at().pipeline);
}

absl::Status Stage::RunLayersForward(const Batch& batch) {
  const absl::Time begin = absl::Now();
  for (const PipelineStep& step : ScheduleFor(batch)) {
    if (step.kind == PipelineStep::Kind::kBackward) continue;
    ModelChunk& chunk = chunks_[step.chunk];
    ModelChunk::Cache cache;
    cache.batch = Slice(batch, step.micro_batch);
    Buffer x = MakeActivation(cache.batch);
    if (!chunk.has_embedding()) SS_RETURN_IF_ERROR(Receive(step, x));
    SS_RETURN_IF_ERROR(chunk.ForwardLayers(x, cache));
    if (!chunk.has_head()) SS_RETURN_IF_ERROR(Send(step, x));
  }
  times_.whole += absl::Now() - begin;
  return absl::OkStatus();
}

absl::Status Stage::RunBatch(const Batch& batch,
                             std::span<double> sample_losses,
                             absl::FunctionRef<absl::Status()> chunk_done) {
  const absl::Time begin = absl::Now();
  context_.all_gradients.BeginBatch();
  for (const PipelineStep& step : ScheduleFor(batch)) {
    const std::pair<int64_t, int64_t> key = {step.chunk, step.micro_batch};
    if (step.kind == PipelineStep::Kind::kForward) {
      ModelChunk::Cache& cache = in_flight_[key];
      cache.batch = Slice(batch, step.micro_batch);
      SS_RETURN_IF_ERROR(Forward(step, cache, sample_losses));
    } else {
      SS_RETURN_IF_ERROR(Backward(step, in_flight_.at(key)));
      in_flight_.erase(key);
      if (step.micro_batch == batch.num_micro_batches() - 1) {
        SS_RETURN_IF_ERROR(chunk_done());
      }
    }
  }
  times_.whole += absl::Now() - begin;
  return absl::OkStatus();
}

}  // namespace shardshift::trainer
