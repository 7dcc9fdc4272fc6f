// SPDX-License-Identifier: Apache-2.0
#include "trainer/mesh.h"

#include "ckpt/core/status_macros.h"

namespace shardshift::trainer {

absl::Status Mesh::SplitExperts() {
  using Place = reshard::ExpertCoordinates;
  const auto first_of = [this](Place at) {
    return reshard::RankOf(layout_, at);
  };
  const Place& at = expert_at_;
  const Place copy = {.data = at.data, .pipeline = at.pipeline};
  const Place same = {
      .expert = at.expert, .data = at.data, .pipeline = at.pipeline};
  const Place part = {
      .tensor = at.tensor, .expert = at.expert, .pipeline = at.pipeline};
  SS_ASSIGN_OR_RETURN(experts_,
                      world_->Split(first_of(copy), world_->rank(), "experts"));
  SS_ASSIGN_OR_RETURN(expert_tensor_, world_->Split(first_of(same), at.tensor,
                                                    "expert tensor"));
  SS_ASSIGN_OR_RETURN(expert_data_,
                      world_->Split(first_of(part), at.data, "expert data"));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Mesh>> Mesh::Create(
    Communicator& world, const reshard::ModelConfig& model,
    const reshard::Layout& layout) {
  auto mesh = std::unique_ptr<Mesh>(new Mesh(world, layout));
  const reshard::RankCoordinates& at = mesh->at_;
  SS_ASSIGN_OR_RETURN(mesh->files_, world.Split(0, world.rank(), "files"));
  mesh->files_->set_timeout(absl::InfiniteDuration());
  // A group is named by its lowest rank.
  const int64_t tensor_group = reshard::RankOf(
      layout, reshard::RankCoordinates{
                  .tensor = 0, .pipeline = at.pipeline, .data = at.data});
  const int64_t data_group = reshard::RankOf(
      layout, reshard::RankCoordinates{
                  .tensor = at.tensor, .pipeline = at.pipeline, .data = 0});
  const int64_t pipeline_group = reshard::RankOf(
      layout, reshard::RankCoordinates{
                  .tensor = at.tensor, .pipeline = 0, .data = at.data});
  SS_ASSIGN_OR_RETURN(mesh->tensor_,
                      world.Split(tensor_group, at.tensor, "tensor"));
  SS_ASSIGN_OR_RETURN(mesh->data_, world.Split(data_group, at.data, "data"));
  SS_ASSIGN_OR_RETURN(mesh->pipeline_,
                      world.Split(pipeline_group, at.pipeline, "pipeline"));

  const bool has_copy = layout.pipeline > 1 &&
                        !model.untie_embeddings_and_output_weights &&
                        (mesh->is_first_stage() || mesh->is_last_stage());
  SS_ASSIGN_OR_RETURN(
      mesh->embedding_,
      world.Split(has_copy ? pipeline_group : -1, at.pipeline, "embedding"));

  const bool shares_group = model.num_query_groups < layout.tensor;
  const int64_t ranks_per_group =
      shares_group ? layout.tensor / model.num_query_groups : 1;
  SS_ASSIGN_OR_RETURN(
      mesh->query_group_,
      world.Split(shares_group ? tensor_group + at.tensor / ranks_per_group *
                                                    ranks_per_group
                               : -1,
                  at.tensor, "query group"));
  if (model.has_experts()) SS_RETURN_IF_ERROR(mesh->SplitExperts());
  return mesh;
}

}  // namespace shardshift::trainer
