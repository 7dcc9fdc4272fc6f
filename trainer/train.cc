// SPDX-License-Identifier: Apache-2.0
#include "trainer/train.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "ckpt/core/status_macros.h"
#include "kernels/kernels.h"
#include "kernels/thread_pool.h"
#include "reshard/layout/parameters.h"
#include "reshard/layout/stages.h"
#include "trainer/checkpointing.h"
#include "trainer/memory_formula.h"
#include "trainer/memory_report.h"
#include "trainer/mesh.h"
#include "trainer/pipeline/schedule_report.h"
#include "trainer/rank_model.h"
#include "trainer/replica_check.h"
#include "trainer/run_log.h"
#include "trainer/run_saves.h"

namespace shardshift::trainer {
namespace {

PipelineShape ShapeOf(const TrainOptions& options) {
  const reshard::Layout& layout = options.layout;
  return {.stages = layout.pipeline,
          .chunks = std::ssize(
              reshard::LayersOfChunksOn(options.config.model, layout, 0)),
          .micro_batches = options.config.global_batch_size /
                           (layout.data * options.micro_batch_size)};
}

// Where a run begins or goes on: in fp16 with a loss scale, else without.
RunProgress StartOf(const TrainOptions& options) {
  RunProgress start = options.start;
  const LossScaling& scaling = options.config.loss_scaling;
  if (options.activations.precision != Precision::kFp16) {
    start.loss_scale.reset();
  } else if (!start.loss_scale.has_value() || scaling.constant > 0) {
    start.loss_scale = StartLossScale(scaling);
  }
  return start;
}

class Trainer {
 public:
  Trainer(Mesh& mesh, const TrainOptions& options, RunLog& log)
      : mesh_(mesh),
        options_(options),
        config_(options.config),
        log_(log),
        model_(kernels::KernelsFor(options.isa), mesh, options.config,
               options.activations),
        order_(options.data_order, options.config.seed,
               options.data->num_samples()),
        progress_(StartOf(options)) {}

  absl::StatusOr<int> Run() {
    SS_RETURN_IF_ERROR(ReportMemory());
    SS_ASSIGN_OR_RETURN(
        const std::unique_ptr<Checkpointing> checkpointing,
        Checkpointing::Create(mesh_, config_.model, model_.parameters(),
                              model_.optimizer()));
    if (options_.checkpoint != nullptr) {
      SS_RETURN_IF_ERROR(options_.finetune
                             ? checkpointing->LoadWeights(*options_.checkpoint)
                             : checkpointing->Load(*options_.checkpoint));
      SS_RETURN_IF_ERROR(CheckReplicas());
    } else {
      model_.parameters().Initialize(reshard::LogicalTensors(config_.model),
                                     config_.seed, config_.init_method_std,
                                     config_.model.num_layers);
      SS_RETURN_IF_ERROR(model_.optimizer().MastersFromWeights());
    }
    SS_ASSIGN_OR_RETURN(
        const std::unique_ptr<RunSaves> saves,
        RunSaves::Create(mesh_, *checkpointing, options_,
                         [this](const std::string& line) { Print(line); }));
    ReportSchedule();
    SS_ASSIGN_OR_RETURN(const int stop_signal, IterateToEnd(*saves));
    SS_RETURN_IF_ERROR(ReportStageTimes());
    SS_RETURN_IF_ERROR(saves->Finish(progress_));
    if (progress_.skipped_iterations > 0) {
      Print(absl::StrCat(progress_.skipped_iterations, " of ", progress_.step,
                         " iterations were skipped, as gradients overflowed"));
    }
    if (stop_signal != 0) ReportStop(stop_signal);
    return stop_signal;
  }

 private:
  void Print(const std::string& line) const {
    if (mesh_.world().rank() == 0) log_.Print(line);
  }

  absl::StatusOr<std::vector<MemoryFigures>> Memory() const {
    return GatherMemory(mesh_.world(),
                        {.measured = model_.memory(),
                         .formula = MemoryByFormula(
                             config_, options_.layout, options_.activations,
                             options_.micro_batch_size, mesh_.at())});
  }

  absl::Status ReportMemory() {
    SS_ASSIGN_OR_RETURN(const std::vector<MemoryFigures> ranks, Memory());
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      Print(
          StartLine(options_.layout, static_cast<int64_t>(rank), ranks[rank]));
    }
    return absl::OkStatus();
  }

  // After the first iteration, which shows whether the run fits, and the last.
  absl::StatusOr<nlohmann::ordered_json> MemoryOfIteration() {
    if (progress_.step != options_.start.step + 1 &&
        progress_.step != options_.train_iters) {
      return nullptr;
    }
    SS_ASSIGN_OR_RETURN(const std::vector<MemoryFigures> ranks, Memory());
    Print(PeakLine(ranks));
    return ToJson(ranks);
  }

  void ReportSchedule() const {
    if (options_.report_schedule == nullptr || mesh_.world().rank() != 0) {
      return;
    }
    options_.report_schedule(ScheduleText(ShapeOf(options_)));
  }

  // Of the pipeline of rank 0.
  absl::Status ReportStageTimes() {
    if (options_.report_schedule == nullptr) return absl::OkStatus();
    const StageTimes mine = model_.stage_times();
    static_assert(std::is_trivially_copyable_v<StageTimes>);
    std::vector<StageTimes> all(mesh_.pipeline().size());
    SS_RETURN_IF_ERROR(
        mesh_.pipeline().AllGather(std::as_bytes(std::span(&mine, 1)),
                                   std::as_writable_bytes(std::span(all))));
    if (mesh_.world().rank() == 0) {
      options_.report_schedule(MeasuredText(
          ShapeOf(options_), all, progress_.step - options_.start.step));
    }
    return absl::OkStatus();
  }

  // Until the last iteration, or a signal, which it gives.
  absl::StatusOr<int> IterateToEnd(RunSaves& saves) {
    while (progress_.step < options_.train_iters) {
      SS_ASSIGN_OR_RETURN(const int signal, AgreeOnStop());
      if (signal != 0) return signal;
      SS_RETURN_IF_ERROR(Iterate());
      if (IsReplicaCheckDue()) SS_RETURN_IF_ERROR(CheckReplicas());
      SS_RETURN_IF_ERROR(saves.AfterIteration(progress_));
    }
    return 0;
  }

  // The signal that some rank got, so that all stop after the same iteration.
  absl::StatusOr<int> AgreeOnStop() {
    if (!options_.stop_signal) return 0;
    auto signal = static_cast<float>(options_.stop_signal());
    SS_RETURN_IF_ERROR(mesh_.world().AllReduceMax(std::span(&signal, 1)));
    return static_cast<int>(signal);
  }

  void ReportStop(int signal) const {
    std::string end = absl::StrFormat(
        "stopped by SIG%s after iteration %d of %d", sigabbrev_np(signal),
        progress_.step, options_.train_iters);
    if (progress_.step == options_.start.step) {
      absl::StrAppend(&end, ", before the first one of this start");
    } else if (options_.save_run_dir.has_value()) {
      absl::StrAppend(&end, "; --load ", *options_.save_run_dir, " goes on");
    } else {
      absl::StrAppend(&end, "; nothing is kept without --save");
    }
    Print(end);
  }

  // This rank's contiguous share of the samples of the next iteration.
  absl::StatusOr<Batch> NextBatch() const {
    const int64_t seq = config_.seq_length;
    Batch batch{.num_samples = config_.global_batch_size / options_.layout.data,
                .micro_batch_size = options_.micro_batch_size};
    const int64_t first =
        progress_.consumed_samples + mesh_.at().data * batch.num_samples;
    batch.number_in_run = first;
    if (!mesh_.is_first_stage() && !mesh_.is_last_stage()) return batch;
    std::vector<int32_t> sample(seq + 1);
    for (int64_t i = 0; i < batch.num_samples; ++i) {
      SS_RETURN_IF_ERROR(
          options_.data->Sample(order_.At(first + i).index, sample));
      batch.tokens.insert(batch.tokens.end(), sample.begin(), sample.end() - 1);
      batch.labels.insert(batch.labels.end(), sample.begin() + 1, sample.end());
    }
    return batch;
  }

  absl::Status Iterate() {
    const absl::Time begin = absl::Now();
    absl::StatusOr<Batch> batch = NextBatch();
    SS_RETURN_IF_ERROR(AgreeOnStatus(mesh_.world(), batch.status()));
    const double lr =
        LearningRate(config_.schedule,
                     progress_.consumed_samples - progress_.skipped_samples);
    std::optional<double> scale;
    if (progress_.loss_scale.has_value()) scale = progress_.loss_scale->scale;
    SS_ASSIGN_OR_RETURN(
        const StepResult result,
        model_.Step(*batch, lr,
                    progress_.step - progress_.skipped_iterations + 1, scale));
    SS_RETURN_IF_ERROR(CheckFinite(result));
    Advance(result);
    SS_ASSIGN_OR_RETURN(nlohmann::ordered_json memory, MemoryOfIteration());
    if (mesh_.world().rank() != 0) return absl::OkStatus();
    const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    const auto tokens =
        static_cast<double>(config_.global_batch_size * config_.seq_length);
    return log_.Add({.iteration = progress_.step,
                     .consumed_samples = progress_.consumed_samples,
                     .loss = result.loss,
                     .grad_norm = result.grad_norm,
                     .learning_rate = lr,
                     .loss_scale = scale,
                     .skipped = progress_.skipped_iterations,
                     .elapsed_ms = 1e3 * seconds,
                     .tokens_per_s = tokens / seconds,
                     .memory = std::move(memory)});
  }

  // A loss that is no number is not for lack of range in the gradients.
  absl::Status CheckFinite(const StepResult& result) const {
    if (std::isfinite(result.loss) &&
        (result.is_updated || progress_.loss_scale.has_value())) {
      return absl::OkStatus();
    }
    return absl::DataLossError(absl::StrFormat(
        "iteration %d: the loss is %g and the gradient norm %g; what was saved "
        "before is as it was: go on from there with a lower --lr or "
        "--clip-grad%s, or look into the data",
        progress_.step + 1, result.loss, result.grad_norm,
        progress_.loss_scale.has_value() ? ", or with --bf16" : ""));
  }

  // Counts an iteration.
  void Advance(const StepResult& result) {
    if (progress_.loss_scale.has_value()) {
      Adapt(config_.loss_scaling, !result.is_updated, *progress_.loss_scale);
    }
    ++progress_.step;
    progress_.consumed_samples += config_.global_batch_size;
    if (!result.is_updated) {
      ++progress_.skipped_iterations;
      progress_.skipped_samples += config_.global_batch_size;
    }
  }

  absl::Status CheckReplicas() {
    return trainer::CheckReplicas(mesh_, model_.parameters(),
                                  model_.optimizer());
  }

  bool IsReplicaCheckDue() const {
    return options_.replica_check_interval > 0 &&
           progress_.step % options_.replica_check_interval == 0;
  }

  Mesh& mesh_;
  const TrainOptions& options_;
  const RunConfig& config_;
  RunLog& log_;
  RankModel model_;
  SampleOrder order_;
  RunProgress progress_;
};

}  // namespace

absl::StatusOr<int> Train(Communicator& world, const TrainOptions& options) {
  absl::StatusOr<std::unique_ptr<RunLog>> log =
      RunLog::Open(world.rank() == 0 ? options.log_jsonl : std::nullopt,
                   options.log_interval, options.train_iters, options.print);
  SS_RETURN_IF_ERROR(AgreeOnStatus(world, log.status()));
  SS_ASSIGN_OR_RETURN(
      const std::unique_ptr<Mesh> mesh,
      Mesh::Create(world, options.config.model, options.layout));
  const kernels::ThreadPool threads(options.threads_per_rank);
  return Trainer(*mesh, options, **log).Run();
}

}  // namespace shardshift::trainer
