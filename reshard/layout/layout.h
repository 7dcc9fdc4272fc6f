// A parallel layout: how many ranks, and which part of the model and of the
// batch each one has. Rank order is Megatron's default, fastest axis first:
//
//   rank = tensor + TP * (data + DP * pipeline)
//
// Source: parallel-layout.md 1 and 2.1 (even pipeline stages).
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_LAYOUT_LAYOUT_H_
#define SHARDSHIFT_RESHARD_LAYOUT_LAYOUT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

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

  bool operator==(const Layout&) const = default;

  int64_t world_size() const { return tensor * pipeline * data; }
};

struct RankCoordinates {
  int64_t tensor = 0;
  int64_t pipeline = 0;
  int64_t data = 0;

  bool operator==(const RankCoordinates&) const = default;
};

RankCoordinates CoordinatesOf(const Layout& layout, int64_t rank);
int64_t RankOf(const Layout& layout, const RankCoordinates& at);

// Errors: InvalidArgument naming the flag and the quantity that does not
// divide: attention heads, query groups, ffn, padded vocabulary by TP; layers
// by PP; axes below 1 or a world above 2^20 ranks.
absl::Status Validate(const ModelConfig& model, const Layout& layout);

// Transformer layers [begin, end) of a pipeline stage.
struct LayerRange {
  int64_t begin = 0;
  int64_t end = 0;
};
LayerRange LayersOfStage(const ModelConfig& model, const Layout& layout,
                         int64_t stage);

// "TP2 PP1 DP2 distributed-optimizer"
std::string ToString(const Layout& layout);
// The same, or "an unknown layout".
std::string ToString(const std::optional<Layout>& layout);

// The `layout` object of a checkpoint's record, the flat-buffer bucket size
// included.
nlohmann::json ToJson(const Layout& layout);
absl::StatusOr<Layout> LayoutFromJson(const nlohmann::json& json);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_LAYOUT_LAYOUT_H_
