// SPDX-License-Identifier: Apache-2.0
#include "tools/reshard_formats.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reshard/formats/format.h"
#include "tools/cli.h"
#include "tools/text_table.h"

namespace shardshift {
namespace {

const char* Word(bool models, bool generic) {
  if (models && generic) return "yes";
  if (models) return "models";
  return generic ? "--generic" : "no";
}

int Print(bool json) {
  if (json) {
    nlohmann::json list = nlohmann::json::array();
    for (const reshard::FormatInfo& info : reshard::Formats()) {
      list.push_back({{"name", std::string(info.name)},
                      {"what", std::string(info.what)},
                      {"reads_models", info.reads_models},
                      {"reads_generic", info.reads_generic},
                      {"writes_models", info.writes_models},
                      {"writes_generic", info.writes_generic}});
    }
    std::cout << list.dump() << "\n";
    return kExitDone;
  }
  std::vector<std::vector<std::string>> rows;
  for (const reshard::FormatInfo& info : reshard::Formats()) {
    rows.push_back({std::string(info.name),
                    Word(info.reads_models, info.reads_generic),
                    Word(info.writes_models, info.writes_generic),
                    std::string(info.what)});
  }
  std::cout << FormatTable({{"format"}, {"read"}, {"written"}, {"what it is"}},
                           rows);
  return kExitDone;
}

}  // namespace

int FormatsMain(int argc, char** argv) {
  const std::unique_ptr<CLI::App> app =
      MakeCli("reshard formats", "Lists the formats of --from and --to.");
  bool json = false;
  app->add_flag("--json", json, "Print JSON");
  return RunCli(*app, argc, argv, [&json] { return Print(json); });
}

}  // namespace shardshift
