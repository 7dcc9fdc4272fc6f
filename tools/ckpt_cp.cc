// `ckpt cp SRC DST`: copies a checkpoint, every byte verified.
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ckpt/copy.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "tools/ckpt_commands.h"
#include "tools/ckpt_open.h"
#include "tools/progress_bar.h"
#include "tools/text_table.h"

namespace shardshift {
namespace {

struct CpFlags {
  std::string source;
  std::string destination;
};

// The run directory that `destination` means: itself, or what it names a step
// of.
absl::StatusOr<std::string> RunDirOf(const std::string& destination,
                                     int64_t step) {
  SS_ASSIGN_OR_RETURN(
      const bool is_step,
      ckpt::Exists(ckpt::JoinPath(destination, ckpt::kIndexFileName)));
  if (is_step) {
    return absl::AlreadyExistsError(
        absl::StrCat(destination, " is a checkpoint; name a run directory"));
  }
  std::filesystem::path path = destination;
  if (path.filename().empty()) path = path.parent_path();
  const std::optional<int64_t> named =
      ckpt::ParseStepName(path.filename().string());
  if (!named) return destination;
  if (*named != step) {
    return absl::InvalidArgumentError(absl::StrCat(
        destination, " names step ", *named, ", the source is step ", step));
  }
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

absl::StatusOr<int> Cp(const CpFlags& flags) {
  SS_ASSIGN_OR_RETURN(const std::shared_ptr<const ckpt::Reader> source,
                      OpenCheckpoint(flags.source));
  if (source->table().is_foreign) {
    return absl::InvalidArgumentError(
        absl::StrCat(flags.source,
                     " is a checkpoint of another format, whose files `cp` "
                     "copies; `reshard` makes one of ours of it"));
  }
  SS_ASSIGN_OR_RETURN(const std::string run_dir,
                      RunDirOf(flags.destination, source->step()));
  {
    ProgressBar bar;
    SS_RETURN_IF_ERROR(ckpt::CopyCheckpoint(
        *source, run_dir,
        [&bar](int64_t done, int64_t total) { bar.Show(done, total); }));
  }
  std::cout << ckpt::JoinPath(run_dir, ckpt::StepName(source->step())) << ": "
            << HumanBytes(source->total_bytes()) << " copied and verified\n";
  return kExitDone;
}

}  // namespace

void AddCp(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "cp", "Copies a checkpoint, verifying every byte on its way.");
  const auto flags = std::make_shared<CpFlags>();
  command->add_option("SRC", flags->source, "A step or run directory")
      ->required();
  command
      ->add_option("DST", flags->destination,
                   "A run directory, made if need be, or a new step in one")
      ->required();
  command->callback(
      [flags, &action] { action = [flags] { return Cp(*flags); }; });
}

}  // namespace shardshift
