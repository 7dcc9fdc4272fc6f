// `ckpt verify CKPT`: looks for damage.
// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/run_dir.h"
#include "ckpt/verify.h"
#include "reshard/formats/format.h"
#include "tools/ckpt_commands.h"
#include "tools/ckpt_open.h"
#include "tools/progress_bar.h"
#include "tools/text_table.h"

namespace shardshift {
namespace {

struct VerifyFlags {
  std::string checkpoint;
  bool deep = false;
  bool all = false;
  bool json = false;
};

// The step directories to verify, at least one. Unlike a load this does not
// pass over a newest step that is damaged.
absl::StatusOr<std::vector<std::string>> StepDirs(const VerifyFlags& flags) {
  const std::string& path = flags.checkpoint;
  SS_ASSIGN_OR_RETURN(const bool is_step_dir,
                      ckpt::Exists(ckpt::JoinPath(path, ckpt::kIndexFileName)));
  if (is_step_dir) return std::vector<std::string>{path};
  SS_ASSIGN_OR_RETURN(const std::vector<ckpt::StepEntry> steps,
                      ckpt::ListSteps(path));
  std::vector<std::string> dirs;
  dirs.reserve(steps.size());
  for (const ckpt::StepEntry& entry : steps) dirs.push_back(entry.path);
  if (!flags.all) dirs = {dirs.back()};
  return dirs;
}

Json ToJson(const ckpt::Fault& fault) {
  Json json;
  json["file"] = fault.file;
  json["tensor"] = fault.tensor;
  json["role"] = fault.role;
  json["fragment"] = fault.fragment;
  json["offset_bytes"] = fault.offset_bytes;
  json["message"] = fault.message;
  return json;
}

// What `--json` prints of one step.
absl::StatusOr<Json> VerifyStep(const std::string& dir, bool deep) {
  Json faults = Json::array();
  const auto on_fault = [&faults](const ckpt::Fault& fault) {
    faults.push_back(ToJson(fault));
  };
  ProgressBar bar;
  absl::StatusOr<ckpt::VerifyReport> report = ckpt::Verify(
      dir, deep, on_fault,
      [&bar](int64_t done, int64_t total) { bar.Show(done, total); });
  if (absl::IsNotFound(report.status())) {
    // A directory named after a step is a checkpoint that lost its index.
    on_fault({.file = ckpt::kIndexFileName,
              .message = std::string(report.status().message())});
    report = ckpt::VerifyReport{};
  }
  SS_RETURN_IF_ERROR(report.status());
  Json json;
  json["path"] = dir;
  json["deep"] = deep;
  json["bytes_checked"] = report->bytes_checked;
  json["faults"] = std::move(faults);
  return json;
}

std::string CountFaults(size_t count) {
  return absl::StrCat(count, count == 1 ? " fault" : " faults");
}

void PrintFaults(const Json& faults) {
  for (const Json& fault : faults) {
    std::cout << "fault: " << fault["message"].get<std::string>() << "\n";
  }
}

void PrintText(const Json& report) {
  const Json& faults = report["faults"];
  PrintFaults(faults);
  std::cout << report["path"].get<std::string>() << ": "
            << HumanBytes(report["bytes_checked"].get<int64_t>())
            << " checked, " << CountFaults(faults.size())
            << (report["deep"].get<bool>() ? "\n"
                                           : "; --deep reads the values too\n");
}

// A checkpoint of another format: what opens is sound as far as it says so
// itself.
absl::StatusOr<Json> VerifyForeign(const std::string& path,
                                   reshard::Format format, bool deep) {
  Json json;
  json["path"] = path;
  json["deep"] = deep;
  json["format"] = std::string(reshard::InfoOf(format).name);
  json["bytes_checked"] = 0;
  json["faults"] = Json::array();
  const auto source =
      OpenSourceOfAnyKind(path, /*fingerprints=*/deep, /*verify=*/deep);
  if (absl::IsDataLoss(source.status())) {
    json["faults"].push_back(ToJson(ckpt::Fault{
        .file = path, .message = std::string(source.status().message())}));
    return json;
  }
  SS_RETURN_IF_ERROR(source.status());
  if (deep) json["bytes_checked"] = source->reader->total_bytes();
  json["has_checksums"] = !source->checks->storages.empty();
  return json;
}

void PrintForeignText(const Json& report) {
  const Json& faults = report["faults"];
  PrintFaults(faults);
  std::string checked;
  if (faults.empty()) {
    const std::string bytes =
        HumanBytes(report["bytes_checked"].get<int64_t>());
    checked = "; structure and sizes checked";
    if (!report["deep"].get<bool>()) {
      checked += ", no values, which --deep reads";
    } else if (report["has_checksums"].get<bool>()) {
      absl::StrAppend(&checked, ", and the checksums of ", bytes);
    } else {
      absl::StrAppend(&checked, ", and ", bytes,
                      " read, of which there are no checksums");
    }
  }
  std::cout << report["path"].get<std::string>() << " ("
            << report["format"].get<std::string>()
            << "): " << CountFaults(faults.size()) << checked << "\n";
}

// A line for a person, and more if there are faults.
void Print(const Json& report) {
  return report.contains("format") ? PrintForeignText(report)
                                   : PrintText(report);
}

absl::StatusOr<int> Verify(const VerifyFlags& flags) {
  const std::string& path = flags.checkpoint;
  SS_ASSIGN_OR_RETURN(const std::optional<reshard::Format> format,
                      reshard::DetectFormat(path));
  if (!format.has_value()) return reshard::NothingKnown(path);
  const bool is_foreign = *format != reshard::Format::kNative;
  std::vector<std::string> dirs = {path};
  if (!is_foreign) {
    SS_ASSIGN_OR_RETURN(dirs, StepDirs(flags));
  }
  Json reports = Json::array();
  size_t num_faults = 0;
  for (const std::string& dir : dirs) {
    SS_ASSIGN_OR_RETURN(Json report,
                        is_foreign ? VerifyForeign(dir, *format, flags.deep)
                                   : VerifyStep(dir, flags.deep));
    num_faults += report["faults"].size();
    if (!flags.json) Print(report);
    reports.push_back(std::move(report));
  }
  if (flags.json) std::cout << ToText(reports) << "\n";
  if (num_faults == 0) return kExitDone;
  return absl::DataLossError(
      absl::StrCat(CountFaults(num_faults), " in ", path));
}

}  // namespace

void AddVerify(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("verify", "Looks for damage in a checkpoint.");
  const auto flags = std::make_shared<VerifyFlags>();
  command
      ->add_option("CKPT", flags->checkpoint,
                   "A step or run directory, or a checkpoint of another format")
      ->required();
  command->add_flag("--deep", flags->deep,
                    "Read every value as well: checksums and fingerprints");
  command->add_flag("--all", flags->all, "Every step of a run directory");
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback(
      [flags, &action] { action = [flags] { return Verify(*flags); }; });
}

}  // namespace shardshift
