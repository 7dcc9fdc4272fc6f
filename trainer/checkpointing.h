// Saving and loading the state of a run's ranks: the one place where the
// trainer meets checkpoints and plans.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_CHECKPOINTING_H_
#define SHARDSHIFT_TRAINER_CHECKPOINTING_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/reader.h"
#include "ckpt/writer.h"
#include "reshard/layout/model_config.h"
#include "reshard/layout/parameters.h"
#include "reshard/layout/write_assignment.h"
#include "trainer/mesh.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parameters.h"

namespace shardshift::trainer {

// A checkpoint that is to be made, equal on all ranks.
struct SaveRequest {
  std::string run_dir;
  ckpt::CheckpointId id;
  std::string record;  // JSON text
  bool replace_existing = false;
};

// The part of one rank in saves and loads. Create, Save and Load are collective
// over the world, and fail on all ranks if they fail on one.
class Checkpointing {
 public:
  using Images = std::span<const std::span<const std::byte>>;

  // Everything outlives this.
  static absl::StatusOr<std::unique_ptr<Checkpointing>> Create(
      Mesh& mesh, const reshard::ModelConfig& model, Parameters& parameters,
      Optimizer& optimizer);

  // The state that this rank writes: an image in live memory for each item.
  Images images() const { return images_; }

  // Writes RUN/step-N from images() or copies of them: each rank its part,
  // then rank 0 commits. On an error no checkpoint is made or changed; the
  // next save of the step removes what is left of this one. `part_failed` is
  // called when the part of this rank fails, which may be long before the end.
  // Any thread may save while training goes on; one save or load at a time.
  absl::Status Save(
      const SaveRequest& request, Images images,
      absl::FunctionRef<void()> part_failed = [] {}) const;

  // Fills weights and optimizer state from a checkpoint of any layout. Ranks
  // of one process read together, each block once.
  // Errors: FailedPrecondition if it is of another model; as Reader::Read.
  absl::Status Load(const ckpt::Reader& reader);

  // The same for the weights alone, of any float dtype; the optimizer state
  // stays. A checkpoint with optimizer state gives its master weights.
  absl::Status LoadWeights(const ckpt::Reader& reader);

 private:
  using Assignment = std::vector<std::vector<reshard::WriteItem>>;

  Checkpointing(Mesh& mesh, const reshard::ModelConfig& model,
                Parameters& parameters, Optimizer& optimizer,
                std::shared_ptr<const Assignment> assignment);

  absl::Status LoadRoles(const ckpt::Reader& reader,
                         std::span<const char* const> roles);
  absl::Status Commit(const SaveRequest& request,
                      const std::optional<ckpt::PartReceipt>& receipt) const;

  Mesh& mesh_;
  Parameters& parameters_;
  Optimizer& optimizer_;
  std::vector<reshard::LogicalTensor> tensors_;
  std::shared_ptr<const Assignment> assignment_;  // of all ranks
  std::span<const reshard::WriteItem> items_;     // that this rank writes
  std::vector<std::span<const std::byte>> images_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_CHECKPOINTING_H_
