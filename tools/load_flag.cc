// SPDX-License-Identifier: Apache-2.0
#include "tools/load_flag.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/run_dir.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/formats/open_source.h"
#include "reshard/formats/weights_check.h"
#include "tools/train_ranks.h"

namespace shardshift {
namespace {

absl::StatusOr<LoadedCheckpoint> ReadRun(
    const ckpt::ResolvedCheckpoint& found) {
  LoadedCheckpoint loaded{.reader = found.reader};
  SS_ASSIGN_OR_RETURN(const reshard::CheckpointState state,
                      reshard::ReadState(*found.reader));
  SS_RETURN_IF_ERROR(reshard::CheckTensors(
      *found.reader, reshard::LogicalTensors(state.model)));
  if (!state.state.contains("training")) {
    return absl::FailedPreconditionError(absl::StrCat(
        found.step_dir,
        " does not hold the settings of a run of ours, as is the case with "
        "what `reshard` makes of other formats: no run goes on from it, "
        "--finetune starts one from its weights"));
  }
  absl::StatusOr<trainer::StoredRun> run = trainer::RunFromState(state.state);
  if (!run.ok()) return Annotate(run.status(), found.step_dir);
  if (run->progress.step != found.reader->step()) {
    return absl::DataLossError(
        absl::StrCat(found.step_dir, ": checkpoint state: progress.step is ",
                     run->progress.step, ", the checkpoint is of step ",
                     found.reader->step()));
  }
  loaded.checkpoint.run = *std::move(run);
  loaded.checkpoint.layout = state.layout;
  const absl::StatusOr<trainer::StoredRecord> record =
      trainer::RecordFromJson(state.record);
  if (!record.ok()) return Annotate(record.status(), found.step_dir);
  loaded.checkpoint.micro_batch_size = record->micro_batch_size;
  loaded.checkpoint.activations = record->activations;
  return loaded;
}

// A run trains its masters, whatever the run before computed with.
void PrintKept(const ckpt::Reader& reader, const PrintLine& print) {
  const std::vector<std::string> kept = reshard::KeptWeights(reader);
  if (kept.empty()) return;
  print(absl::StrCat("masters are taken, not ", reshard::DescribeKept(kept)));
}

// Nothing to be done about a --load that is not there.
bool MayStartAnew(const LoadFlags& flags, const absl::Status& found) {
  if (!absl::IsNotFound(found) || !flags.if_present) return false;
  flags.print(absl::StrCat("--load ", *flags.path,
                           " holds no checkpoint: starting anew"));
  return true;
}

// Why there is no run at `path`, of which `status` says that none was found.
// That there is a checkpoint which we cannot go on from is no reason to start
// anew.
absl::Status WhyNoRun(const std::string& path, const absl::Status& status) {
  SS_ASSIGN_OR_RETURN(const std::optional<reshard::Format> found,
                      reshard::DetectFormat(path));
  if (!found.has_value()) return reshard::NothingKnown(path);
  if (*found == reshard::Format::kNative) return status;
  return absl::FailedPreconditionError(absl::StrCat(
      path, " is a checkpoint of another format, ",
      reshard::InfoOf(*found).name,
      "; --finetune starts a run from its weights, `reshard` makes one of ours "
      "from it"));
}

// The weights of --load --finetune, of a checkpoint of any format.
absl::StatusOr<std::optional<LoadedCheckpoint>> FindWeights(
    const LoadFlags& flags) {
  const absl::StatusOr<reshard::OpenedSource> source = reshard::OpenSource(
      *flags.path, {.foreign = {.weights_only = true}, .verify = true});
  if (MayStartAnew(flags, source.status())) return std::nullopt;
  if (!source.ok()) return Annotate(source.status(), "--load");
  for (const std::string& note : source->notes) flags.print(note);
  const ckpt::Reader& reader = *source->reader;
  SS_ASSIGN_OR_RETURN(const reshard::WholeModel whole,
                      reshard::ReadWholeModel(reader));
  flags.print(absl::StrCat("starting from the weights of ", reader.directory(),
                           ", format ", reshard::InfoOf(source->format).name));
  PrintKept(reader, flags.print);
  LoadedCheckpoint loaded{.reader = source->reader};
  loaded.weights =
      KnownModel{.model = whole.state.model, .origin = reader.directory()};
  return loaded;
}

}  // namespace

absl::StatusOr<std::optional<LoadedCheckpoint>> FindCheckpoint(
    const LoadFlags& flags) {
  if (!flags.path.has_value()) return std::nullopt;
  if (flags.finetune) return FindWeights(flags);
  const absl::StatusOr<ckpt::ResolvedCheckpoint> found =
      ckpt::ResolveCheckpoint(*flags.path);
  if (!found.ok()) {
    const absl::Status why = absl::IsNotFound(found.status())
                                 ? WhyNoRun(*flags.path, found.status())
                                 : found.status();
    if (MayStartAnew(flags, why)) return std::nullopt;
    return Annotate(why, "--load");
  }
  if (!found->note.empty()) flags.print(found->note);
  SS_ASSIGN_OR_RETURN(LoadedCheckpoint loaded, ReadRun(*found));
  flags.print(absl::StrCat("loading ", loaded.reader->directory(),
                           ", written on ",
                           reshard::ToString(loaded.checkpoint.layout)));
  PrintKept(*loaded.reader, flags.print);
  return loaded;
}

absl::StatusOr<std::optional<LoadedCheckpoint>> FindCheckpointTogether(
    trainer::Communicator& world, const LoadFlags& flags) {
  absl::StatusOr<std::optional<LoadedCheckpoint>> found = std::nullopt;
  if (world.rank() == 0) found = FindCheckpoint(flags);
  SS_RETURN_IF_ERROR(AgreeOnInput(world, found.status()));
  LoadFlags same = flags;
  same.path = found->has_value() ? (*found)->reader->directory() : "";
  same.if_present = false;
  SS_RETURN_IF_ERROR(trainer::BroadcastText(world, *same.path));
  if (world.rank() > 0 && !same.path->empty()) found = FindCheckpoint(same);
  SS_RETURN_IF_ERROR(AgreeOnInput(world, found.status()));
  return found;
}

}  // namespace shardshift
