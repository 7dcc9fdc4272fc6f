// Saving and loading the state of a run's ranks: the one place where the
// trainer meets checkpoints and plans.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_CHECKPOINTING_H_
#define SHARDSHIFT_TRAINER_CHECKPOINTING_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "reshard/layout/model_config.h"
#include "reshard/layout/parameters.h"
#include "reshard/layout/write_assignment.h"
#include "trainer/mesh.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parameters.h"

namespace shardshift::trainer {

// The part of one rank in saves and loads. Every call is collective over the
// world, and fails on all ranks if it fails on one.
class Checkpointing {
 public:
  // Everything outlives this.
  Checkpointing(Mesh& mesh, const reshard::ModelConfig& model,
                Parameters& parameters, Optimizer& optimizer);

  // Writes RUN/step-N: each rank its part, then rank 0 commits. On an error no
  // checkpoint is made or changed; the next save of the step removes what is
  // left of this one.
  absl::Status Save(const std::string& run_dir, int64_t step,
                    const nlohmann::json& state, const nlohmann::json& record,
                    bool replace_existing);

  // Fills weights and optimizer state from a checkpoint of any layout.
  absl::Status Load(const std::string& step_dir);

 private:
  absl::Status SaveParts(const std::string& run_dir, int64_t step,
                         const nlohmann::json& state,
                         const nlohmann::json& record, bool replace_existing);

  Mesh& mesh_;
  Parameters& parameters_;
  Optimizer& optimizer_;
  std::vector<reshard::LogicalTensor> tensors_;
  std::vector<reshard::WriteItem> items_;  // that this rank writes
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_CHECKPOINTING_H_
