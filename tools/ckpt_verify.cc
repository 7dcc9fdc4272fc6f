// `ckpt verify CKPT`: looks for damage.
// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/run_dir.h"
#include "ckpt/verify.h"
#include "tools/ckpt_commands.h"
#include "tools/ckpt_open.h"

namespace shardshift {
namespace {

struct VerifyFlags {
  std::string checkpoint;
  bool deep = false;
  bool all = false;
  bool json = false;
};

// The step directories to verify. Unlike a load this does not pass over a
// newest step that is damaged.
absl::StatusOr<std::vector<std::string>> StepDirs(const VerifyFlags& flags) {
  const std::string& path = flags.checkpoint;
  SS_ASSIGN_OR_RETURN(const bool is_step_dir,
                      ckpt::Exists(ckpt::JoinPath(path, ckpt::kIndexFileName)));
  if (is_step_dir) return std::vector<std::string>{path};
  SS_ASSIGN_OR_RETURN(const std::vector<ckpt::StepEntry> steps,
                      ckpt::ListSteps(path));
  std::vector<std::string> dirs;
  for (const ckpt::StepEntry& entry : steps) dirs.push_back(entry.path);
  if (dirs.empty()) {
    return absl::NotFoundError(
        absl::StrCat(path, " holds no checkpoint: expected step-* or ",
                     ckpt::kIndexFileName, " in it"));
  }
  if (!flags.all) dirs = {dirs.back()};
  return dirs;
}

Json ToJson(const ckpt::Fault& fault) {
  Json json;
  json["file"] = fault.file;
  json["tensor"] = fault.tensor;
  json["offset_bytes"] = fault.offset_bytes;
  json["message"] = fault.message;
  return json;
}

absl::StatusOr<int> Verify(const VerifyFlags& flags) {
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> dirs, StepDirs(flags));
  Json reports = Json::array();
  int64_t num_faults = 0;
  for (const std::string& dir : dirs) {
    Json faults = Json::array();
    const auto on_fault = [&](const ckpt::Fault& fault) {
      faults.push_back(ToJson(fault));
      if (!flags.json) std::cout << "fault: " << fault.message << "\n";
    };
    SS_ASSIGN_OR_RETURN(const ckpt::VerifyReport report,
                        ckpt::Verify(dir, flags.deep, on_fault));
    num_faults += report.num_faults;
    Json json;
    json["path"] = dir;
    json["bytes_checked"] = report.bytes_checked;
    json["faults"] = faults;
    reports.push_back(json);
    if (!flags.json) {
      std::cout << dir << ": " << HumanBytes(report.bytes_checked)
                << " checked, " << report.num_faults << " faults\n";
    }
  }
  if (flags.json) std::cout << reports.dump() << "\n";
  if (num_faults == 0) return kExitDone;
  return absl::DataLossError(
      absl::StrCat(num_faults, " faults in ", flags.checkpoint));
}

}  // namespace

void AddVerify(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("verify", "Looks for damage in a checkpoint.");
  const auto flags = std::make_shared<VerifyFlags>();
  command->add_option("CKPT", flags->checkpoint, "A step or run directory")
      ->required();
  command->add_flag("--deep", flags->deep, "Read the values as well");
  command->add_flag("--all", flags->all, "Every step of a run directory");
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback(
      [flags, &action] { action = [flags] { return Verify(*flags); }; });
}

}  // namespace shardshift
