// A parallel layout: how many ranks, and which part of the model and of the
// batch each one has. Rank order is Megatron's default, fastest axis first:
//
//   rank = tensor + TP * (data + DP * pipeline)
//
// For the experts of a mixture the same ranks are numbered a second time:
//
//   rank = expert tensor + ETP * (expert + EP * (expert data + EDP * pipeline))
//
// Source: parallel-layout.md 1 and 6.5. Stages: stages.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_LAYOUT_LAYOUT_H_
#define SHARDSHIFT_RESHARD_LAYOUT_LAYOUT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/layout/model_config.h"

namespace shardshift::reshard {

struct Layout {
  int64_t tensor = 1;
  int64_t pipeline = 1;
  int64_t data = 1;
  // Optimizer state cut over the data-parallel ranks instead of replicated.
  bool distributed_optimizer = false;

  // Ranks the experts of a layer are handed out to, and ranks each expert is
  // cut over; 0: as many as `tensor`.
  int64_t expert = 1;
  int64_t expert_tensor = 0;

  // How layers are handed out to stages where it is not evenly and at once.
  // Interleaving: layers a model chunk, or chunks a stage; 0: not given.
  int64_t layers_per_virtual_stage = 0;
  int64_t virtual_stages = 0;
  // Layers of the first and the last stage; 0: not given.
  int64_t first_stage_layers = 0;
  int64_t last_stage_layers = 0;
  // Count as a layer of their stage.
  bool account_for_embedding = false;
  bool account_for_loss = false;
  // Layers of every chunk, in the order of the layers; empty: not given.
  std::vector<int64_t> stage_layers = {};

  bool operator==(const Layout&) const = default;

  int64_t world_size() const { return tensor * pipeline * data; }
  int64_t expert_tensor_size() const {
    return expert_tensor == 0 ? tensor : expert_tensor;
  }
  // Ranks that share one copy of all experts of a layer: so many that follow
  // one another, tensor fastest.
  int64_t expert_copy_size() const { return expert_tensor_size() * expert; }
  // Ranks that hold the same part of the same experts.
  int64_t expert_data_size() const {
    return tensor * data / expert_copy_size();
  }
  // Whether experts are cut and replicated over other ranks than the rest, and
  // hence lie in flat buffers of their own. megatron-core 0.16.1 does so for
  // EP > 1 alone, and reduces experts of another TP over the wrong ranks; later
  // versions are as here (parallel-layout.md 6.6).
  bool separates_experts() const {
    return expert > 1 || expert_tensor_size() != tensor;
  }
};

struct RankCoordinates {
  int64_t tensor = 0;
  int64_t pipeline = 0;
  int64_t data = 0;

  bool operator==(const RankCoordinates&) const = default;
};

RankCoordinates CoordinatesOf(const Layout& layout, int64_t rank);
int64_t RankOf(const Layout& layout, const RankCoordinates& at);

// The place of a rank among those that share the experts.
struct ExpertCoordinates {
  int64_t tensor = 0;
  int64_t expert = 0;
  int64_t data = 0;
  int64_t pipeline = 0;

  bool operator==(const ExpertCoordinates&) const = default;
};

ExpertCoordinates ExpertCoordinatesOf(const Layout& layout, int64_t rank);
int64_t RankOf(const Layout& layout, const ExpertCoordinates& at);

// Experts [begin, end) of every layer, those of expert-parallel rank
// `expert_rank`.
struct ExpertRange {
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const ExpertRange&) const = default;
};
ExpertRange ExpertsOf(const ModelConfig& model, const Layout& layout,
                      int64_t expert_rank);

// Errors: InvalidArgument naming the flag and the quantity that does not
// divide: attention heads, query groups, widths of feed-forward blocks, padded
// vocabulary by TP or expert TP; experts by EP; ranks by EP and expert TP;
// layers by stages (stages.h); flags that exclude one another or that the model
// has no use for; axes below 1 or a world above 2^20 ranks.
absl::Status Validate(const ModelConfig& model, const Layout& layout);

// "TP2 PP1 DP2 distributed-optimizer"; what is not the default follows.
std::string ToString(const Layout& layout);
// The same, or "an unknown layout".
std::string ToString(const std::optional<Layout>& layout);

// The `layout` object of a checkpoint's record, the flat-buffer bucket size
// included. Beyond the plain axes a key is there only if it differs from its
// default.
// REQUIRES: Validate(model, layout) is OK for some model.
nlohmann::json ToJson(const Layout& layout);
// The same, or null.
nlohmann::json ToJson(const std::optional<Layout>& layout);
// Errors: DataLoss for a key that is missing or mistyped. Any numbers are
// taken: Validate judges them.
absl::StatusOr<Layout> LayoutFromJson(const nlohmann::json& json);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_LAYOUT_LAYOUT_H_
