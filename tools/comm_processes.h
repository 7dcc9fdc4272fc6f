// The ranks of a communicator as processes that reshard together.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_COMM_PROCESSES_H_
#define SHARDSHIFT_TOOLS_COMM_PROCESSES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/exec/processes.h"
#include "trainer/comm/communicator.h"

namespace shardshift {

class CommProcesses final : public reshard::Processes {
 public:
  // `comm` outlives this.
  explicit CommProcesses(trainer::Communicator& comm) : comm_(comm) {}

  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }
  absl::StatusOr<std::vector<std::string>> AllGather(
      const std::string& mine) override;

 private:
  trainer::Communicator& comm_;
};

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_COMM_PROCESSES_H_
