// SPDX-License-Identifier: Apache-2.0
#include "tools/train_flags.h"

#include "tools/cli.h"

namespace shardshift {
namespace {

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

void AddLogFlags(CLI::App& app, TrainFlags& flags) {
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

}  // namespace

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
  AddLogFlags(app, flags);
  app.add_option("--threads-per-rank", flags.threads_per_rank,
                 "threads of each rank that compute (1)")
      ->check(IntIn(1, 1024))
      ->type_name("N")
      ->group("Run");
  app.add_option("--distributed-timeout-minutes", flags.timeout_minutes,
                 "how long a rank waits for another one, which does not count "
                 "waits for saves and loads (10)")
      ->check(NumberIn(1e-3, 1e6))
      ->type_name("X")
      ->group("Run");
}

}  // namespace shardshift
