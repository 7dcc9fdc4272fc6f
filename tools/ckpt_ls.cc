// `ckpt ls RUN`: the checkpoints of a run.
// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "tools/ckpt_commands.h"
#include "tools/ckpt_open.h"

namespace shardshift {
namespace {

struct LsFlags {
  std::string run;
  bool json = false;
};

absl::StatusOr<Json> Describe(const ckpt::StepEntry& entry) {
  SS_ASSIGN_OR_RETURN(const std::unique_ptr<ckpt::Reader> reader,
                      ckpt::Reader::Open(entry.path));
  SS_ASSIGN_OR_RETURN(const Json record, ParseJson(reader->record(), "record"));
  Json json;
  json["step"] = entry.step;
  json["bytes"] = reader->total_bytes();
  json["layout"] = record.is_object() ? record.value("layout", Json()) : Json();
  json["path"] = entry.path;
  return json;
}

absl::StatusOr<int> Ls(const LsFlags& flags) {
  SS_ASSIGN_OR_RETURN(const std::vector<ckpt::StepEntry> steps,
                      ckpt::ListSteps(flags.run));
  if (steps.empty()) {
    return absl::NotFoundError(
        absl::StrCat(flags.run, " holds no checkpoint; name a run directory"));
  }
  Json list = Json::array();
  for (const ckpt::StepEntry& entry : steps) {
    const absl::StatusOr<Json> json = Describe(entry);
    if (json.ok()) {
      list.push_back(*json);
    } else {
      std::cerr << "note: " << entry.path
                << " does not open: " << std::string(json.status().message())
                << std::endl;
    }
  }
  if (flags.json) {
    std::cout << list.dump() << "\n";
    return kExitDone;
  }
  for (const Json& json : list) {
    std::cout << absl::StreamFormat(
        "%10d  %10s  %s  %s\n", json["step"].get<int64_t>(),
        HumanBytes(json["bytes"].get<int64_t>()),
        json["path"].get<std::string>(), json["layout"].dump());
  }
  return kExitDone;
}

}  // namespace

void AddLs(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("ls", "Lists the steps of a run.");
  const auto flags = std::make_shared<LsFlags>();
  command->add_option("RUN", flags->run, "A run directory")->required();
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback(
      [flags, &action] { action = [flags] { return Ls(*flags); }; });
}

}  // namespace shardshift
