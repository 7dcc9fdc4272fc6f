// The log of a run: a line for people each log interval, a JSON object a line
// for programs each iteration.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_RUN_LOG_H_
#define SHARDSHIFT_TRAINER_RUN_LOG_H_

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace shardshift::trainer {

struct IterationRecord {
  int64_t iteration = 0;
  int64_t consumed_samples = 0;
  float loss = 0;
  float grad_norm = 0;
  double learning_rate = 0;
  std::optional<double> loss_scale = std::nullopt;  // nullopt: not scaled
  int64_t skipped = 0;  // iterations without an update, of the whole run
  double elapsed_ms = 0;
  double tokens_per_s = 0;
  nlohmann::ordered_json memory = nullptr;  // of all ranks, where it is told
};

// The JSON object of one iteration, with the bits of loss and norm in
// hexadecimal, without a line feed.
std::string ToJsonLine(const IterationRecord& record);

class RunLog {
 public:
  // Appends to `jsonl`. Errors: those of opening it.
  static absl::StatusOr<std::unique_ptr<RunLog>> Open(
      const std::optional<std::string>& jsonl, int64_t log_interval,
      int64_t train_iters, std::function<void(const std::string&)> print);
  ~RunLog();

  // Errors: those of writing the file.
  absl::Status Add(const IterationRecord& record);

  void Print(const std::string& line) const { print_(line); }

 private:
  RunLog(std::FILE* file, std::string path, int64_t log_interval,
         int64_t train_iters, std::function<void(const std::string&)> print);

  std::FILE* file_;  // null without a JSONL log
  std::string path_;
  int64_t log_interval_;
  int64_t train_iters_;
  std::function<void(const std::string&)> print_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_RUN_LOG_H_
