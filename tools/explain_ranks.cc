// SPDX-License-Identifier: Apache-2.0
#include "tools/explain_ranks.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/layout/model_map.h"
#include "reshard/layout/stages.h"
#include "tools/rank_words.h"
#include "tools/text_table.h"

namespace shardshift {
namespace {

using Chunks = std::vector<reshard::LayerRange>;

// By stage.
std::vector<Chunks> ChunksOfStages(const reshard::ModelConfig& model,
                                   const reshard::Layout& layout) {
  std::vector<Chunks> stages;
  for (int64_t stage = 0; stage < layout.pipeline; ++stage) {
    stages.push_back(LayersOfChunksOn(model, layout, stage));
  }
  return stages;
}

std::vector<Column> ColumnsFor(const reshard::ModelConfig& model,
                               const reshard::Layout& layout) {
  std::vector<Column> columns = {{"rank", Align::kRight}};
  for (const AxisPlace& place : PlacesOf(model, layout, 0)) {
    columns.push_back({place.axis, Align::kRight});
  }
  columns.push_back({"layers"});
  columns.push_back({"and"});
  if (model.has_experts()) columns.push_back({"experts"});
  for (const char* title : {"parameters", "gradients", "optimizer state"}) {
    columns.push_back({title, Align::kRight});
  }
  return columns;
}

}  // namespace

std::string RanksText(const reshard::ModelConfig& model,
                      const reshard::Layout& layout) {
  const std::vector<Chunks> stages = ChunksOfStages(model, layout);
  const std::vector<reshard::RankSize> sizes = SizesOfRanks(model, layout);
  std::vector<std::vector<std::string>> rows;
  for (int64_t rank = 0; rank < layout.world_size(); ++rank) {
    std::vector<std::string> row = {absl::StrCat(rank)};
    for (const AxisPlace& place : PlacesOf(model, layout, rank)) {
      row.push_back(absl::StrCat(place.at));
    }
    const int64_t stage = CoordinatesOf(layout, rank).pipeline;
    row.push_back(LayersText(stages[stage]));
    row.push_back(EndsText(layout, stage));
    if (model.has_experts()) row.push_back(ExpertsText(model, layout, rank));
    const StateBytes bytes = BytesOf(sizes[rank]);
    for (const int64_t part :
         {bytes.parameters, bytes.gradients, bytes.optimizer}) {
      row.push_back(HumanBytes(part));
    }
    rows.push_back(std::move(row));
  }
  return absl::StrCat(CountText(layout.world_size(), "rank"), ", ",
                      ToString(layout), "\n", ModelText(model), "\n\n",
                      FormatTable(ColumnsFor(model, layout), rows));
}

nlohmann::json RanksJson(const reshard::ModelConfig& model,
                         const reshard::Layout& layout) {
  const std::vector<Chunks> stages = ChunksOfStages(model, layout);
  const std::vector<reshard::RankSize> sizes = SizesOfRanks(model, layout);
  nlohmann::json ranks = nlohmann::json::array();
  for (int64_t rank = 0; rank < layout.world_size(); ++rank) {
    nlohmann::json entry = {{"rank", rank},
                            {"coordinates", PlacesJson(model, layout, rank)},
                            {"bytes", ToJson(BytesOf(sizes[rank]))},
                            {"layers", nlohmann::json::array()}};
    for (const reshard::LayerRange& chunk :
         stages[CoordinatesOf(layout, rank).pipeline]) {
      entry["layers"].push_back({chunk.begin, chunk.end});
    }
    ranks.push_back(std::move(entry));
  }
  return {{"layout", ToJson(layout)},
          {"world_size", layout.world_size()},
          {"ranks", ranks}};
}

}  // namespace shardshift
