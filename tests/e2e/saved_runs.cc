// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/saved_runs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "reshard/exec/reshard.h"
#include "tests/trainer/tiny_model.h"

namespace shardshift::trainer {

namespace fs = std::filesystem;

ScratchDir::ScratchDir() {
  static std::atomic<int> count = 0;
  path_ =
      absl::StrCat(::testing::TempDir(), "saved_runs.", getpid(), ".", ++count);
  fs::create_directories(path_);
}

ScratchDir::~ScratchDir() { fs::remove_all(path_); }

absl::Status TrainAndSave(const RunConfig& config,
                          const reshard::Layout& layout, int64_t iterations,
                          const std::string& run_dir,
                          const ActivationOptions& activations) {
  TrainOptions run = MockRun(config, layout, iterations);
  run.activations = activations;
  run.save_run_dir = run_dir;
  return TrainAndLog(run).status();
}

absl::StatusOr<std::vector<std::string>> Resume(
    const RunConfig& config, const reshard::Layout& layout,
    const std::string& run_dir, int64_t step, int64_t end, bool save,
    const ActivationOptions& activations) {
  TrainOptions run = MockRun(config, layout, end);
  run.activations = activations;
  if (save) run.save_run_dir = run_dir;
  SS_ASSIGN_OR_RETURN(run.checkpoint,
                      ckpt::Reader::Open(run_dir + "/" + ckpt::StepName(step)));
  run.start = {.step = step,
               .consumed_samples = step * config.global_batch_size};
  return TrainAndLog(run);
}

absl::Status Reshard(const std::string& source, const std::string& destination,
                     const reshard::Layout& layout) {
  SS_ASSIGN_OR_RETURN(const ckpt::ResolvedCheckpoint found,
                      ckpt::ResolveCheckpoint(source));
  SS_ASSIGN_OR_RETURN(const std::unique_ptr<ckpt::Reader> reader,
                      ckpt::Reader::Open(found.step_dir));
  SS_ASSIGN_OR_RETURN(
      const reshard::ReshardReport report,
      reshard::ReshardCheckpoint(*reader, destination, layout, {}));
  return report.proof;
}

std::map<std::string, std::string> FilesBelow(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::ostringstream bytes;
    bytes << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    files[fs::relative(entry.path(), directory)] = bytes.str();
  }
  return files;
}

std::string FirstDifference(const std::map<std::string, std::string>& a,
                            const std::map<std::string, std::string>& b) {
  for (const auto& [path, bytes] : a) {
    const auto it = b.find(path);
    if (it == b.end()) return path + " is only in the first";
    if (it->second != bytes) return path + " differs";
  }
  for (const auto& [path, bytes] : b) {
    if (!a.contains(path)) return path + " is only in the second";
  }
  return a.empty() ? "no files" : "";
}

}  // namespace shardshift::trainer
