// The model chunks of one pipeline stage, and running a batch through them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_PIPELINE_STAGE_H_
#define SHARDSHIFT_TRAINER_PIPELINE_STAGE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "trainer/layers/attention.h"
#include "trainer/layers/context.h"
#include "trainer/pipeline/model_chunk.h"
#include "trainer/pipeline/schedule.h"
#include "trainer/pipeline/schedule_report.h"

namespace shardshift::trainer {

// A rank's share of a global batch, cut into micro-batches.
struct Batch {
  int64_t number_in_run = 0;  // of the first sample, counted over the whole run
  int64_t num_samples = 0;
  int64_t micro_batch_size = 0;
  // [num_samples, S] each; empty on middle stages.
  std::vector<int32_t> tokens = {};
  std::vector<int32_t> labels = {};

  int64_t num_micro_batches() const { return num_samples / micro_batch_size; }
};

class Stage {
 public:
  // `context` outlives the stage. `tied_entry`: see LossHead.
  Stage(LayerContext& context, std::optional<int64_t> tied_entry);

  // Runs forward and backward of all micro-batches by 1F1B, interleaved if the
  // stage has several chunks, with activations and their gradients going to the
  // neighbours. Gradients are left in the context's buffer. sample_losses:
  // [num_samples] on the last stage, else untouched. `chunk_done` is called
  // when the gradients of a chunk are complete and its last message has gone
  // out, so that it keeps no other stage waiting.
  absl::Status RunBatch(const Batch& batch, std::span<double> sample_losses,
                        absl::FunctionRef<absl::Status()> chunk_done);

  // Runs the layers alone forward, over all micro-batches, and keeps nothing.
  absl::Status RunLayersForward(const Batch& batch);

  // Of all batches so far.
  const StageTimes& times() const { return times_; }

 private:
  std::vector<PipelineStep> ScheduleFor(const Batch& batch) const;
  MicroBatch Slice(const Batch& batch, int64_t micro_batch) const;
  // An activation of a micro-batch, or its gradient, between two chunks.
  Buffer MakeActivation(const MicroBatch& batch) const;
  absl::Status Forward(const PipelineStep& step, ModelChunk::Cache& cache,
                       std::span<double> sample_losses);
  absl::Status Backward(const PipelineStep& step, ModelChunk::Cache& cache);

  // Messages are matched by micro-batch, receiving chunk of the model and
  // direction, never by order.
  int64_t Tag(const PipelineStep& step, int64_t receiver) const;

  // To the next or the previous chunk of the model, and from it.
  absl::Status Send(const PipelineStep& step, const Buffer& data);
  absl::Status Receive(const PipelineStep& step, Buffer& data);

  LayerContext& context_;
  RopeTable rope_;
  std::vector<ModelChunk> chunks_;
  // By chunk and micro-batch.
  std::map<std::pair<int64_t, int64_t>, ModelChunk::Cache> in_flight_;
  StageTimes times_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_PIPELINE_STAGE_H_
