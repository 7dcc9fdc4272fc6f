// Processes that do one piece of work together.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_PROCESSES_H_
#define SHARDSHIFT_RESHARD_EXEC_PROCESSES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace shardshift::reshard {

// Used by one thread.
class Processes {
 public:
  Processes() = default;
  virtual ~Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // What all give, by rank. Every process must call it.
  virtual absl::StatusOr<std::vector<std::string>> AllGather(
      const std::string& mine) = 0;
};

// This one alone.
class OneProcess final : public Processes {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  absl::StatusOr<std::vector<std::string>> AllGather(
      const std::string& mine) override {
    return std::vector<std::string>{mine};
  }
};

// What all give if all succeed; else the error of the lowest rank that did
// not, for all. Every process must call it.
absl::StatusOr<std::vector<std::string>> AllGatherIfOk(
    Processes& processes, const absl::StatusOr<std::string>& mine);

// Ends with the same status on all.
absl::Status Agree(Processes& processes, const absl::Status& mine);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_PROCESSES_H_
