// `ckpt ls RUN`: the checkpoints of a run.
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "reshard/formats/format.h"
#include "reshard/layout/layout.h"
#include "tools/ckpt_commands.h"
#include "tools/ckpt_open.h"
#include "tools/text_table.h"

namespace shardshift {
namespace {

struct LsFlags {
  std::string run;
  bool json = false;
};

absl::StatusOr<Json> Describe(const ckpt::StepEntry& entry) {
  SS_ASSIGN_OR_RETURN(const std::unique_ptr<ckpt::Reader> reader,
                      ckpt::Reader::Open(entry.path));
  SS_ASSIGN_OR_RETURN(
      const Json record,
      ParseJson(reader->record(), absl::StrCat(entry.path, ": record")));
  Json json;
  json["step"] = entry.step;
  json["bytes"] = reader->total_bytes();
  json["layout"] = record.is_object() ? record.value("layout", Json()) : Json();
  json["path"] = entry.path;
  return json;
}

// "TP2 PP1 DP2"; what a checkpoint of another kind has instead, as it is.
std::string HumanLayout(const Json& json) {
  if (json.is_null()) return "-";
  const auto layout = reshard::LayoutFromJson(json);
  return layout.ok() ? reshard::ToString(*layout) : ToText(json);
}

// "5 min": since the directory last changed, in the largest unit that fits.
std::string Age(const std::string& directory) {
  struct stat info = {};
  if (stat(directory.c_str(), &info) != 0) return "-";
  const absl::Duration age = absl::Now() - absl::TimeFromTimespec(info.st_mtim);
  if (age < absl::Minutes(1)) {
    return absl::StrCat(std::max<int64_t>(0, absl::ToInt64Seconds(age)), " s");
  }
  if (age < absl::Hours(1)) {
    return absl::StrCat(absl::ToInt64Minutes(age), " min");
  }
  if (age < absl::Hours(48)) {
    return absl::StrCat(absl::ToInt64Hours(age), " h");
  }
  return absl::StrCat(absl::ToInt64Hours(age) / 24, " days");
}

std::vector<std::string> Row(const ckpt::StepEntry& entry,
                             const absl::StatusOr<Json>& json) {
  const std::string step = absl::StrCat(entry.step);
  if (!json.ok()) {
    return {step, "-", Age(entry.path), "does not open", entry.path};
  }
  return {step, HumanBytes((*json)["bytes"].get<int64_t>()), Age(entry.path),
          HumanLayout((*json)["layout"]), entry.path};
}

absl::StatusOr<int> Ls(const LsFlags& flags) {
  SS_ASSIGN_OR_RETURN(const std::vector<ckpt::StepEntry> steps,
                      ckpt::ListSteps(flags.run));
  if (steps.empty()) {
    SS_RETURN_IF_ERROR(
        CheckNotForeign(flags.run, "`ls` lists the steps of runs"));
    return reshard::NothingKnown(flags.run);
  }
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows;
  for (const ckpt::StepEntry& entry : steps) {
    const absl::StatusOr<Json> json = Describe(entry);
    rows.push_back(Row(entry, json));
    if (json.ok()) {
      list.push_back(*json);
    } else {
      Json broken;
      broken["step"] = entry.step;
      broken["bytes"] = nullptr;
      broken["layout"] = nullptr;
      broken["path"] = entry.path;
      broken["error"] = json.status().message();
      list.push_back(std::move(broken));
      std::cerr << "note: " << entry.path
                << " does not open: " << std::string(json.status().message())
                << std::endl;
    }
  }
  if (flags.json) {
    std::cout << ToText(list) << "\n";
  } else {
    std::cout << FormatTable({{"step", Align::kRight},
                              {"size", Align::kRight},
                              {"age", Align::kRight},
                              {"layout"},
                              {"path"}},
                             rows);
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
