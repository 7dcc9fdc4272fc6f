// The process groups of one rank: reshard's layout turned into communicators.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_MESH_H_
#define SHARDSHIFT_TRAINER_MESH_H_

#include <memory>

#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/model_config.h"
#include "trainer/comm/communicator.h"

namespace shardshift::trainer {

class Mesh {
 public:
  // Collective over `world`, which outlives the mesh.
  // REQUIRES: world.size() == layout.world_size(), Validate(model, layout).
  static absl::StatusOr<std::unique_ptr<Mesh>> Create(
      Communicator& world, const reshard::ModelConfig& model,
      const reshard::Layout& layout);

  const reshard::Layout& layout() const { return layout_; }
  const reshard::RankCoordinates& at() const { return at_; }
  // The rank's place among those that share the experts; meaningful for any
  // model.
  const reshard::ExpertCoordinates& expert_at() const { return expert_at_; }
  bool is_first_stage() const { return at_.pipeline == 0; }
  bool is_last_stage() const { return at_.pipeline == layout_.pipeline - 1; }

  Communicator& world() { return *world_; }
  // The world once more, for saves and loads: apart from the collectives of
  // training, and without a timeout, as disks take their time.
  Communicator& files() { return *files_; }
  Communicator& tensor() { return *tensor_; }
  Communicator& pipeline() { return *pipeline_; }
  Communicator& data() { return *data_; }
  // Of a model with experts, else null. The ranks that share one copy of all
  // experts of the stage, tensor fastest; of them those that share the same
  // ones; and those that hold the same part of the same experts.
  Communicator* experts() { return experts_.get(); }
  Communicator* expert_tensor() { return expert_tensor_.get(); }
  Communicator* expert_data() { return expert_data_.get(); }
  // The first and last stage (rank 0 and 1), which both hold a tied embedding;
  // null on other stages, with one stage, or with untied embeddings.
  Communicator* embedding() { return embedding_.get(); }
  // The tensor-parallel ranks that share one query group; null where each rank
  // has whole groups.
  Communicator* query_group() { return query_group_.get(); }

 private:
  Mesh(Communicator& world, const reshard::Layout& layout)
      : layout_(layout),
        at_(reshard::CoordinatesOf(layout, world.rank())),
        expert_at_(reshard::ExpertCoordinatesOf(layout, world.rank())),
        world_(&world) {}

  reshard::Layout layout_;
  reshard::RankCoordinates at_;
  reshard::ExpertCoordinates expert_at_;
  Communicator* world_;
  std::unique_ptr<Communicator> files_;
  std::unique_ptr<Communicator> tensor_;
  std::unique_ptr<Communicator> pipeline_;
  std::unique_ptr<Communicator> data_;
  std::unique_ptr<Communicator> embedding_;
  std::unique_ptr<Communicator> query_group_;
  std::unique_ptr<Communicator> experts_;
  std::unique_ptr<Communicator> expert_tensor_;
  std::unique_ptr<Communicator> expert_data_;

  // Collective over the world.
  absl::Status SplitExperts();
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_MESH_H_
