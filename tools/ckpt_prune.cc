// `ckpt prune RUN`: deletes the steps that need not be kept.
// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/retention.h"
#include "ckpt/run_dir.h"
#include "tools/ckpt_commands.h"
#include "tools/ckpt_open.h"

namespace shardshift {
namespace {

struct PruneFlags {
  std::string run_dir;
  std::optional<int64_t> keep_last;
  std::optional<int64_t> keep_every;
  bool dry_run = false;
};

absl::StatusOr<int> Prune(const PruneFlags& flags) {
  if (!flags.keep_last.has_value() && !flags.keep_every.has_value()) {
    return absl::InvalidArgumentError(
        "what to keep is missing; give --keep-last or --keep-every");
  }
  SS_ASSIGN_OR_RETURN(
      const bool is_step,
      ckpt::Exists(ckpt::JoinPath(flags.run_dir, ckpt::kIndexFileName)));
  if (is_step) {
    return absl::InvalidArgumentError(absl::StrCat(
        flags.run_dir, " is a checkpoint; name its run directory"));
  }
  SS_RETURN_IF_ERROR(
      CheckNotForeign(flags.run_dir, "`prune` deletes steps of runs"));
  const ckpt::Retention retention = {
      .keep_last = flags.keep_last.value_or(1),
      .keep_every = flags.keep_every.value_or(0)};
  SS_ASSIGN_OR_RETURN(const ckpt::PruneReport report,
                      ckpt::PruneRun(flags.run_dir, retention, flags.dry_run));
  for (const ckpt::StepEntry& step : report.deleted) {
    std::cout << (flags.dry_run ? "would delete " : "deleted ") << step.path
              << "\n";
  }
  for (const std::string& left : report.left) {
    std::cerr << "left: " << left << std::endl;
  }
  if (report.deleted.empty()) std::cout << "nothing to delete\n";
  return kExitDone;
}

}  // namespace

void AddPrune(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "prune", "Deletes the checkpoints of a run that need not be kept.");
  const auto flags = std::make_shared<PruneFlags>();
  command->add_option("RUN", flags->run_dir, "A run directory")->required();
  const CLI::Validator count = IntIn(1, int64_t{1} << 31);
  command
      ->add_option("--keep-last", flags->keep_last,
                   "Keep the newest N steps that open whole (1 beside "
                   "--keep-every)")
      ->transform(count)
      ->type_name("N");
  command
      ->add_option("--keep-every", flags->keep_every,
                   "Keep each step that M divides")
      ->transform(count)
      ->type_name("M");
  command->add_flag("--dry-run", flags->dry_run,
                    "Only tell what would be deleted");
  command->callback(
      [flags, &action] { action = [flags] { return Prune(*flags); }; });
}

}  // namespace shardshift
