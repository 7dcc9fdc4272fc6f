// Runs that save, and their run directories, compared byte by byte.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_E2E_SAVED_RUNS_H_
#define SHARDSHIFT_TESTS_E2E_SAVED_RUNS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"
#include "trainer/run_config.h"

namespace shardshift::trainer {

// A directory of this test that goes with it.
class ScratchDir {
 public:
  ScratchDir();
  ~ScratchDir();
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;

  std::string Path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Trains `iterations` from the start and saves at the end.
absl::Status TrainAndSave(const RunConfig& config,
                          const reshard::Layout& layout, int64_t iterations,
                          const std::string& run_dir,
                          const ActivationOptions& activations = {});

// Goes on from step `step` of `run_dir` to iteration `end`; gives the log. With
// `save` it saves there at the end.
absl::StatusOr<std::vector<std::string>> Resume(
    const RunConfig& config, const reshard::Layout& layout,
    const std::string& run_dir, int64_t step, int64_t end, bool save = false,
    const ActivationOptions& activations = {});

// The one step of `source` for `layout`, at `destination`, with proof.
absl::Status Reshard(const std::string& source, const std::string& destination,
                     const reshard::Layout& layout);

// Relative path of every file below `directory`, and its bytes.
std::map<std::string, std::string> FilesBelow(const std::string& directory);

// "", or what tells two directories apart.
std::string FirstDifference(const std::map<std::string, std::string>& a,
                            const std::map<std::string, std::string>& b);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TESTS_E2E_SAVED_RUNS_H_
