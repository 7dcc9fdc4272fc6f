// The flags of `train`.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_TRAIN_FLAGS_H_
#define SHARDSHIFT_TOOLS_TRAIN_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tools/load_flag.h"
#include "tools/run_flags.h"

namespace shardshift {

struct TrainFlags {
  RunFlags run;
  std::vector<std::string> data_paths;
  bool mock_data = false;
  std::optional<std::string> data_order;
  std::optional<std::string> save;
  LoadFlags load;
  int64_t save_interval = 0;
  bool async_save = false;
  std::optional<int64_t> keep_last;
  std::optional<int64_t> keep_every;
  int64_t log_interval = 100;
  int64_t replica_check_interval = 0;
  std::optional<std::string> log_jsonl;
  bool schedule_report = false;
  int64_t threads_per_rank = 1;
  double timeout_minutes = 10;

  // What a rank waits for another one within a call.
  absl::Duration timeout() const { return absl::Minutes(timeout_minutes); }
};

void AddTrainFlags(CLI::App& app, TrainFlags& flags);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_TRAIN_FLAGS_H_
