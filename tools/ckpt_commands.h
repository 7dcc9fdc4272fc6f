// The subcommands of `ckpt`. Each declares its flags on `app` and, when it is
// the one on the command line, sets `action`.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_CKPT_COMMANDS_H_
#define SHARDSHIFT_TOOLS_CKPT_COMMANDS_H_

#include <CLI/CLI.hpp>

#include "tools/cli.h"

namespace shardshift {

void AddLs(CLI::App& app, Action& action);
void AddShow(CLI::App& app, Action& action);
void AddVerify(CLI::App& app, Action& action);
void AddDiff(CLI::App& app, Action& action);
void AddCat(CLI::App& app, Action& action);
void AddStats(CLI::App& app, Action& action);
void AddRebuild(CLI::App& app, Action& action);
void AddPrune(CLI::App& app, Action& action);
void AddCp(CLI::App& app, Action& action);
void AddSynth(CLI::App& app, Action& action);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_CKPT_COMMANDS_H_
