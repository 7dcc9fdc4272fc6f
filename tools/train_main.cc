// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
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
#include "tools/run_flags.h"
#include "tools/train_ranks.h"
#include "trainer/comm/communicator.h"
#include "trainer/comm/mpi/mpi_world.h"
#include "trainer/data/data_identity.h"
#include "trainer/data/token_source.h"
#include "trainer/train.h"

namespace shardshift {
namespace {

struct TrainFlags {
  RunFlags run;
  std::vector<std::string> data_paths;
  bool mock_data = false;
  std::optional<std::string> data_order;
  std::optional<std::string> save;
  LoadFlags load;
  int64_t save_interval = 0;
  bool async_save = false;
  std::optional<int64_t> keep_last;
  std::optional<int64_t> keep_every;
  int64_t log_interval = 100;
  int64_t replica_check_interval = 0;
  std::optional<std::string> log_jsonl;
  bool schedule_report = false;
};

void AddCheckpointFlags(CLI::App& app, TrainFlags& flags) {
  const char* const group = "Checkpoints";
  const CLI::Validator count = IntIn(1, int64_t{1} << 31);
  CLI::Option* save = app.add_option("--save", flags.save,
                                     "run directory to save checkpoints in")
                          ->type_name("DIR")
                          ->group(group);
  app.add_option("--save-interval", flags.save_interval,
                 "iterations between saves (only after the last)")
      ->check(count)
      ->type_name("N")
      ->group(group);
  app.add_flag("--async-save", flags.async_save,
               "write a copy of the state while training goes on, in as "
               "much memory again as weights and optimizer state")
      ->needs(save)
      ->group(group);
  app.add_option("--keep-last", flags.keep_last,
                 "after each save, delete all but the newest N checkpoints "
                 "and the one of --load")
      ->check(count)
      ->needs(save)
      ->type_name("N")
      ->group(group);
  app.add_option("--keep-every", flags.keep_every,
                 "keep each step that M divides too; alone, it implies "
                 "--keep-last 1")
      ->check(count)
      ->needs(save)
      ->type_name("M")
      ->group(group);
  app.add_option("--load", flags.load.path,
                 "run directory, whose newest checkpoint that opens is "
                 "taken, or one checkpoint; of any layout. With --finetune "
                 "also one of another format")
      ->type_name("DIR")
      ->group(group);
  app.add_flag("--finetune", flags.load.finetune,
               "start a new run from the weights of --load: a checkpoint "
               "here, a folder of Hugging Face, or whatever `reshard` reads. "
               "The model is that of the checkpoint")
      ->needs("--load")
      ->group(group);
  app.add_flag("--load-if-present", flags.load.if_present,
               "start anew if --load holds no checkpoint")
      ->group(group);
}

void AddTrainFlags(CLI::App& app, TrainFlags& flags) {
  AddRunFlags(app, flags.run, FlagScope::kTrain);
  app.add_option("--data-path", flags.data_paths,
                 "indexed data sets (PREFIX of .bin and .idx), one after "
                 "another")
      ->type_name("PREFIX")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group("Data");
  app.add_flag("--mock-data", flags.mock_data,
               "made-up tokens in place of --data-path")
      ->group("Data");
  app.add_option("--data-order", flags.data_order,
                 "shuffled (default) or sequential")
      ->check(CLI::IsMember({"shuffled", "sequential"}))
      ->type_name("NAME")
      ->group("Data");
  AddCheckpointFlags(app, flags);
  app.add_option("--check-weight-hash-across-dp-replicas-interval",
                 flags.replica_check_interval,
                 "iterations between comparisons of weights that ranks should "
                 "have in common (none)")
      ->check(IntIn(1, int64_t{1} << 31))
      ->type_name("N")
      ->group("Log");
  app.add_option("--log-interval", flags.log_interval,
                 "iterations between lines of the log (100)")
      ->check(IntIn(1, int64_t{1} << 31))
      ->type_name("N")
      ->group("Log");
  app.add_option("--log-jsonl", flags.log_jsonl,
                 "file to append one JSON object an iteration to")
      ->type_name("FILE")
      ->group("Log");
  app.add_flag("--schedule-report", flags.schedule_report,
               "print the pipeline schedule and its bubble, in theory and as "
               "measured")
      ->group("Log");
}

// Of what a rank waits for another one within a call.
constexpr absl::Duration kPeerTimeout = absl::Minutes(10);

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
      .save_run_dir = flags.save,
      .save_interval = flags.save_interval,
      .async_save = flags.async_save,
      .log_interval = flags.log_interval,
      .replica_check_interval = flags.replica_check_interval,
      .log_jsonl = flags.log_jsonl,
      .print = ranks.print};
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
  return IsDone(options, ranks) ? kExitDone : TrainOnThreads(options);
}

// What one process of a job finds, all end with.
absl::Status RunAsRank(trainer::Communicator& world, TrainFlags flags) {
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
  return IsDone(*options, ranks) ? absl::OkStatus()
                                 : TrainAsRank(world, *options);
}

absl::StatusOr<int> RunTraining(const TrainFlags& flags,
                                trainer::MpiWorld* job) {
  if (job == nullptr) return RunAlone(flags);
  SS_RETURN_IF_ERROR(job->Run(kPeerTimeout, [&](trainer::Communicator& world) {
    return RunAsRank(world, flags);
  }));
  return kExitDone;
}

}  // namespace
}  // namespace shardshift

int main(int argc, char** argv) {
  const std::unique_ptr<CLI::App> app = shardshift::MakeCli(
      "train",
      "Trains a GPT-style model on CPU ranks, with checkpoints that resume on "
      "any layout. Ranks are threads, or under `mpirun -np N train` processes. "
      "What is not given comes from the checkpoint of --load, then from the "
      "default in parentheses.");
  shardshift::TrainFlags flags;
  flags.load.print = shardshift::Print;
  shardshift::AddTrainFlags(*app, flags);
  return shardshift::RunLaunchedCli(
      *app, argc, argv, [&flags](shardshift::trainer::MpiWorld* job) {
        return RunTraining(flags, job);
      });
}
