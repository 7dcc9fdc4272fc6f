// `ckpt synth DST`: a checkpoint of any model and layout, without training.
// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "ckpt/core/status_macros.h"
#include "reshard/exec/synth.h"
#include "tools/ckpt_commands.h"
#include "tools/resolve_run.h"
#include "tools/run_flags.h"
#include "trainer/data/data_identity.h"
#include "trainer/data/token_source.h"
#include "trainer/run_config.h"
#include "trainer/run_state.h"

namespace shardshift {
namespace {

struct SynthFlags {
  RunFlags run;
  bool sequence_parallel = false;
  std::string destination;
  int64_t step = 0;
  ckpt::Codec codec = ckpt::Codec::kNone;
  bool index_only = false;
};

// What a training run would need and a made-up checkpoint may leave out.
void FillTraining(RunFlags& flags) {
  if (!flags.micro_batch_size.has_value()) flags.micro_batch_size = 1;
  if (!flags.train_iters.has_value()) flags.train_iters = 1;
  if (!flags.lr.has_value()) flags.lr = 1e-4;
}

absl::StatusOr<int> Synth(SynthFlags flags) {
  FillTraining(flags.run);
  SS_ASSIGN_OR_RETURN(const ResolvedRun run, ResolveNewRun(flags.run));
  const std::unique_ptr<trainer::TokenSource> data =
      trainer::MakeMockTokenSource(run.config.seed, run.config.seq_length,
                                   run.config.model.vocab_size);
  const trainer::StoredRun stored{
      .config = run.config,
      .progress = {.step = flags.step,
                   .consumed_samples =
                       flags.step * run.config.global_batch_size},
      .data = trainer::DataIdentity(*data, trainer::DataOrder::kShuffled,
                                    run.config.seed)};
  const nlohmann::json state = trainer::ToState(stored);
  const nlohmann::json record =
      trainer::ToRecord(run.layout, run.micro_batch_size);
  SS_RETURN_IF_ERROR(flags.index_only
                         ? reshard::WriteSynthIndex(
                               flags.destination, flags.step, run.config.model,
                               run.layout, state, record)
                         : reshard::WriteSynthCheckpoint(
                               flags.destination, flags.step, run.config.model,
                               run.layout, state, record, flags.codec));
  return kExitDone;
}

}  // namespace

void AddSynth(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "synth",
      "Writes a checkpoint of any model and layout, weights and optimizer, "
      "with values coded by tensor, role and position: for tests, benchmarks "
      "and rehearsals. `train --mock-data --load` goes on from it.");
  auto flags = std::make_shared<SynthFlags>();
  command
      ->add_option("destination", flags->destination,
                   "run directory to make; must not exist")
      ->required()
      ->type_name("DST");
  command->add_option("--step", flags->step, "step of the checkpoint (0)")
      ->check(IntIn(0, std::numeric_limits<int32_t>::max()))
      ->type_name("N");
  AddCodecFlag(*command, flags->codec);
  command
      ->add_flag("--index-only", flags->index_only,
                 "write the index and no parts, in no time at any size: "
                 "`reshard --dry-run` plans from it, nothing else takes it")
      ->excludes("--codec");
  AddRunFlags(*command, flags->run, FlagScope::kCheckpoints);
  AddSequenceParallelFlag(*command, flags->sequence_parallel);
  command->callback(
      [flags, &action] { action = [flags] { return Synth(*flags); }; });
}

}  // namespace shardshift
