// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <memory>

#include "tools/ckpt_commands.h"
#include "tools/cli.h"

int main(int argc, char** argv) {
  const std::unique_ptr<CLI::App> app = shardshift::MakeCli(
      "ckpt", "Looks into, compares and verifies checkpoints.");
  app->require_subcommand(1);
  shardshift::Action action;
  shardshift::AddLs(*app, action);
  shardshift::AddShow(*app, action);
  shardshift::AddVerify(*app, action);
  shardshift::AddDiff(*app, action);
  shardshift::AddCat(*app, action);
  shardshift::AddStats(*app, action);
  shardshift::AddRebuild(*app, action);
  shardshift::AddPrune(*app, action);
  shardshift::AddCp(*app, action);
  shardshift::AddSynth(*app, action);
  return shardshift::RunCli(*app, argc, argv, action);
}
