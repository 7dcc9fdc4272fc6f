// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "kernels/isa.h"
#include "tools/cli.h"
#include "tools/launched_cli.h"
#include "tools/load_flag.h"
#include "tools/output_checks.h"
#include "tools/resolve_run.h"
#include "tools/stop_signal.h"
#include "tools/train_flags.h"
#include "tools/train_ranks.h"
#include "trainer/comm/communicator.h"
#include "trainer/comm/mpi/mpi_world.h"
#include "trainer/data/data_identity.h"
#include "trainer/data/token_source.h"
#include "trainer/train.h"

namespace shardshift {
namespace {

void Print(const std::string& line) { std::cerr << line << std::endl; }

struct Ranks {
  PrintLine print;
  const char* kind;  // "threads"
};

std::filesystem::path Canonical(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::weakly_canonical(path, ignored);
}

// Whether the run goes on in the run directory it was loaded from, whose later
// steps it may replace. Any other run directory with steps is refused.
absl::StatusOr<bool> MayReplaceSteps(
    const std::string& save, const std::optional<LoadedCheckpoint>& loaded) {
  const absl::StatusOr<std::vector<ckpt::StepEntry>> steps =
      ckpt::ListSteps(save);
  if (absl::IsNotFound(steps.status())) return false;
  if (!steps.ok()) return steps.status();
  if (steps->empty()) return false;
  if (loaded.has_value() && loaded->is_run() &&
      Canonical(loaded->reader->directory()).parent_path() == Canonical(save)) {
    return true;
  }
  return absl::AlreadyExistsError(
      absl::StrCat("--save ", save, " holds checkpoints of another run (up to ",
                   steps->back().path,
                   "); name another directory, or go on from it with "
                   "--load ",
                   save));
}

absl::StatusOr<std::unique_ptr<trainer::TokenSource>> OpenData(
    const TrainFlags& flags, const trainer::RunConfig& config) {
  if (flags.mock_data == !flags.data_paths.empty()) {
    return absl::InvalidArgumentError("give either --data-path or --mock-data");
  }
  if (flags.mock_data) {
    return trainer::MakeMockTokenSource(config.seed, config.seq_length,
                                        config.model.vocab_size);
  }
  return trainer::OpenIndexedTokenSource(flags.data_paths, config.seq_length,
                                         config.model.vocab_size);
}

absl::StatusOr<trainer::DataOrder> ResolveDataOrder(
    const TrainFlags& flags, const std::optional<LoadedCheckpoint>& loaded) {
  if (flags.data_order.has_value() || !loaded.has_value() ||
      !loaded->is_run()) {
    return trainer::ParseDataOrder(flags.data_order.value_or("shuffled"));
  }
  const nlohmann::json& data = loaded->checkpoint.run.data;
  const auto order = data.find("order");
  if (order == data.end() || !order->is_string()) {
    return absl::DataLossError(
        absl::StrCat(loaded->reader->directory(),
                     ": checkpoint state: data.order is missing"));
  }
  return trainer::ParseDataOrder(order->get<std::string>());
}

std::optional<ckpt::Retention> RetentionOf(
    const TrainFlags& flags, const trainer::TrainOptions& options) {
  if (!flags.keep_last.has_value() && !flags.keep_every.has_value()) {
    return std::nullopt;
  }
  ckpt::Retention retention{.keep_last = flags.keep_last.value_or(1),
                            .keep_every = flags.keep_every.value_or(0)};
  // The run may have to go on from it once more.
  if (options.replace_steps) {
    retention.protected_steps = {options.start.step};
  }
  return retention;
}

void PrintRun(const trainer::TrainOptions& options, const Ranks& ranks) {
  const trainer::RunConfig& config = options.config;
  ranks.print(absl::StrCat("layout ", reshard::ToString(options.layout), ", ",
                           options.layout.world_size(), " rank ", ranks.kind,
                           ", kernels ",
                           std::string(kernels::IsaName(options.isa))));
  ranks.print(absl::StrFormat(
      "global batch %d = micro-batch %d x accumulation %d x DP %d",
      config.global_batch_size, options.micro_batch_size,
      config.global_batch_size /
          (options.micro_batch_size * options.layout.data),
      options.layout.data));
  if (options.activations.precision != trainer::Precision::kFp32) {
    ranks.print(absl::StrCat("precision ",
                             trainer::Name(options.activations.precision),
                             ", fp32 master weights and gradients"));
  }
  if (config.seq_length > config.model.max_position_embeddings) {
    ranks.print(absl::StrCat(
        "warning: --seq-length ", config.seq_length,
        " goes beyond the model's max_position_embeddings ",
        config.model.max_position_embeddings,
        ": its rotary embedding is computed for positions that it may never "
        "have been trained on"));
  }
  ranks.print(absl::StrFormat(
      "numerics: tensor granularity %d, data granularity %d, padded "
      "vocabulary %d",
      config.numerics.tensor_granularity, config.numerics.data_granularity,
      config.model.padded_vocab_size));
}

void PrintChanges(const ResolvedRun& run, const CheckpointRun& checkpoint,
                  const Ranks& ranks) {
  for (const std::string& change : run.changes) {
    ranks.print("changed: " + change);
  }
  if (run.config.numerics != checkpoint.run.config.numerics) {
    ranks.print(
        "other numerics constants: from here on the loss curve is another "
        "one, the same for all layouts");
  }
}

// Everything before the first iteration, as far as one process can tell.
absl::StatusOr<trainer::TrainOptions> PrepareRun(
    const TrainFlags& flags, const std::optional<LoadedCheckpoint>& loaded,
    const Ranks& ranks) {
  const bool resumes = loaded.has_value() && loaded->is_run();
  SS_ASSIGN_OR_RETURN(
      const ResolvedRun run,
      resumes ? ResolveResumedRun(flags.run, loaded->checkpoint)
              : ResolveNewRun(flags.run, loaded.has_value() ? loaded->weights
                                                            : std::nullopt));
  SS_RETURN_IF_ERROR(trainer::CheckTrainable(run.config.model));
  SS_RETURN_IF_ERROR(Validate(run.activations, run.config.model, run.layout));
  if (!flags.run.train_iters.has_value()) {
    return absl::InvalidArgumentError("--train-iters is missing");
  }
  trainer::TrainOptions options{
      .config = run.config,
      .layout = run.layout,
      .micro_batch_size = run.micro_batch_size,
      .activations = run.activations,
      .train_iters = *flags.run.train_iters,
      .isa = kernels::DetectIsa(),
      .threads_per_rank = flags.threads_per_rank,
      .save_run_dir = flags.save,
      .save_interval = flags.save_interval,
      .async_save = flags.async_save,
      .log_interval = flags.log_interval,
      .replica_check_interval = flags.replica_check_interval,
      .log_jsonl = flags.log_jsonl,
      .print = ranks.print,
      .stop_signal = CaughtStopSignal};
  if (flags.schedule_report) {
    options.report_schedule = [](const std::string& text) {
      std::cout << text << std::endl;
    };
  }
  SS_ASSIGN_OR_RETURN(options.data_order, ResolveDataOrder(flags, loaded));
  SS_ASSIGN_OR_RETURN(options.data, OpenData(flags, run.config));
  if (loaded.has_value()) {
    options.checkpoint = loaded->reader;
    options.finetune = !resumes;
  }
  if (resumes) {
    SS_RETURN_IF_ERROR(trainer::CheckSameData(
        loaded->checkpoint.run.data,
        trainer::DataIdentity(*options.data, options.data_order,
                              run.config.seed)));
    options.start = loaded->checkpoint.run.progress;
  }
  SS_RETURN_IF_ERROR(CheckOutputs(flags.save, flags.log_jsonl));
  if (flags.save.has_value()) {
    SS_ASSIGN_OR_RETURN(options.replace_steps,
                        MayReplaceSteps(*flags.save, loaded));
    options.retention = RetentionOf(flags, options);
  }
  if (resumes) PrintChanges(run, loaded->checkpoint, ranks);
  PrintRun(options, ranks);
  return options;
}

bool IsDone(const trainer::TrainOptions& options, const Ranks& ranks) {
  if (options.start.step < options.train_iters) return false;
  ranks.print(absl::StrCat("nothing to do: the checkpoint has ",
                           options.start.step, " iterations, --train-iters is ",
                           options.train_iters));
  return true;
}

absl::StatusOr<int> RunAlone(const TrainFlags& flags) {
  const Ranks ranks = {.print = Print, .kind = "threads"};
  SS_ASSIGN_OR_RETURN(const std::optional<LoadedCheckpoint> loaded,
                      FindCheckpoint(flags.load));
  SS_ASSIGN_OR_RETURN(const trainer::TrainOptions options,
                      PrepareRun(flags, loaded, ranks));
  return IsDone(options, ranks) ? kExitDone
                                : TrainOnThreads(options, flags.timeout());
}

// What one process of a job finds, all end with. Until they train they wait for
// each other's work on files, without a limit.
absl::StatusOr<int> RunAsRank(trainer::Communicator& world, TrainFlags flags) {
  Ranks ranks = {.print = Print, .kind = "processes"};
  if (world.rank() > 0) ranks.print = [](const std::string&) {};
  flags.load.print = ranks.print;
  SS_ASSIGN_OR_RETURN(const std::optional<LoadedCheckpoint> loaded,
                      FindCheckpointTogether(world, flags.load));
  const bool resumes = loaded.has_value() && loaded->is_run();
  const absl::Status fits = FitToProcesses(
      world.size(),
      resumes ? loaded->checkpoint.layout.value_or(reshard::Layout())
              : reshard::Layout(),
      flags.run.layout);
  SS_RETURN_IF_ERROR(AgreeOnInput(world, fits));
  const absl::StatusOr<trainer::TrainOptions> options =
      PrepareRun(flags, loaded, ranks);
  SS_RETURN_IF_ERROR(AgreeOnInput(world, options.status()));
  SS_RETURN_IF_ERROR(CheckSameRun(world, *options));
  return IsDone(*options, ranks)
             ? kExitDone
             : TrainAsRank(world, *options, flags.timeout());
}

absl::StatusOr<int> RunTraining(const TrainFlags& flags,
                                trainer::MpiWorld* job) {
  CatchStopSignals();
  if (job == nullptr) return RunAlone(flags);
  absl::StatusOr<int> code;
  SS_RETURN_IF_ERROR(
      job->Run(absl::InfiniteDuration(), [&](trainer::Communicator& world) {
        code = RunAsRank(world, flags);
        return code.status();
      }));
  return code;
}

}  // namespace
}  // namespace shardshift

int main(int argc, char** argv) {
  const std::unique_ptr<CLI::App> app = shardshift::MakeCli(
      "train",
      "Trains a GPT-style model on CPU ranks, with checkpoints that resume on "
      "any layout. Ranks are threads, or under `mpirun -np N train` processes. "
      "What is not given comes from the checkpoint of --load, then from the "
      "default in parentheses. After SIGTERM, SIGINT or SIGUSR1, to any rank, "
      "it ends between two iterations with a save to --save, and the exit code "
      "is 128 + the signal's number.");
  shardshift::TrainFlags flags;
  flags.load.print = shardshift::Print;
  shardshift::AddTrainFlags(*app, flags);
  return shardshift::RunLaunchedCli(
      *app, argc, argv, [&flags](shardshift::trainer::MpiWorld* job) {
        return shardshift::RunTraining(flags, job);
      });
}
