// `ckpt rebuild STEP_DIR`: makes a lost index anew from the parts.
// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/rebuild.h"
#include "tools/ckpt_commands.h"

namespace shardshift {
namespace {

struct RebuildFlags {
  std::string step_dir;
  bool force = false;
  bool views = false;
};

absl::StatusOr<int> Rebuild(const RebuildFlags& flags) {
  ckpt::RebuildOptions options = {.replaces_whole_index = flags.force};
  if (flags.views) {
    options.max_viewed_fragments = std::numeric_limits<int64_t>::max();
  }
  SS_ASSIGN_OR_RETURN(const ckpt::RebuildReport report,
                      ckpt::RebuildIndex(flags.step_dir, options));
  std::cout << absl::StrCat("index of step ", report.step, " made of ",
                            report.num_parts, " parts: ", report.num_tensors,
                            " tensors in ", report.num_fragments,
                            " fragments\n");
  if (!report.knows_record) {
    std::cerr << "note: the old index does not tell on which layout the "
                 "checkpoint was written; train --load needs --tp, --pp, --dp "
                 "and --micro-batch-size"
              << std::endl;
  }
  return kExitDone;
}

}  // namespace

void AddRebuild(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "rebuild", "Makes the index of a checkpoint anew from its parts.");
  const auto flags = std::make_shared<RebuildFlags>();
  command->add_option("STEP_DIR", flags->step_dir, "A step directory")
      ->required();
  command->add_flag("--force", flags->force, "Replace even a whole index");
  command->add_flag("--views", flags->views,
                    "Add views for h5py, however many fragments there are");
  command->callback(
      [flags, &action] { action = [flags] { return Rebuild(*flags); }; });
}

}  // namespace shardshift
