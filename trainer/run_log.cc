// SPDX-License-Identifier: Apache-2.0
#include "trainer/run_log.h"

#include <bit>
#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace shardshift::trainer {
namespace {

std::string Bits(float value) {
  return absl::StrFormat("%08x", std::bit_cast<uint32_t>(value));
}

}  // namespace

std::string ToJsonLine(const IterationRecord& record) {
  nlohmann::ordered_json line = {{"iteration", record.iteration},
                                 {"consumed_samples", record.consumed_samples},
                                 {"lm_loss", record.loss},
                                 {"lm_loss_bits", Bits(record.loss)},
                                 {"grad_norm", record.grad_norm},
                                 {"grad_norm_bits", Bits(record.grad_norm)},
                                 {"learning_rate", record.learning_rate},
                                 {"loss_scale", record.loss_scale.value_or(1)},
                                 {"skipped", record.skipped},
                                 {"elapsed_ms", record.elapsed_ms},
                                 {"tokens_per_s", record.tokens_per_s}};
  if (!record.memory.is_null()) line["memory"] = record.memory;
  return line.dump();
}

RunLog::RunLog(std::FILE* file, std::string path, int64_t log_interval,
               int64_t train_iters,
               std::function<void(const std::string&)> print)
    : file_(file),
      path_(std::move(path)),
      log_interval_(log_interval),
      train_iters_(train_iters),
      print_(std::move(print)) {}

RunLog::~RunLog() {
  if (file_ != nullptr) std::fclose(file_);
}

absl::StatusOr<std::unique_ptr<RunLog>> RunLog::Open(
    const std::optional<std::string>& jsonl, int64_t log_interval,
    int64_t train_iters, std::function<void(const std::string&)> print) {
  std::FILE* file = nullptr;
  if (jsonl.has_value()) {
    file = std::fopen(jsonl->c_str(), "a");
    if (file == nullptr) {
      return absl::ErrnoToStatus(errno, absl::StrCat("--log-jsonl ", *jsonl));
    }
  }
  return std::unique_ptr<RunLog>(new RunLog(
      file, jsonl.value_or(""), log_interval, train_iters, std::move(print)));
}

absl::Status RunLog::Add(const IterationRecord& record) {
  if (file_ != nullptr) {
    const std::string line = ToJsonLine(record) + "\n";
    if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() ||
        std::fflush(file_) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("--log-jsonl ", path_));
    }
  }
  if (record.iteration % log_interval_ == 0) {
    const std::string scale =
        record.loss_scale.has_value()
            ? absl::StrFormat(
                  " | loss scale: %.1f | number of skipped iterations: %3d",
                  *record.loss_scale, record.skipped)
            : "";
    print_(absl::StrFormat(
        " iteration %8d/%8d | consumed samples: %12d | elapsed time per "
        "iteration (ms): %.1f | learning rate: %.6E | lm loss: %.6E%s | grad "
        "norm: %.3f | tokens/s: %.0f",
        record.iteration, train_iters_, record.consumed_samples,
        record.elapsed_ms, record.learning_rate, record.loss, scale,
        record.grad_norm, record.tokens_per_s));
  }
  return absl::OkStatus();
}

}  // namespace shardshift::trainer
