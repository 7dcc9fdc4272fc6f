// SPDX-License-Identifier: Apache-2.0
#include "tools/rank_words.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "reshard/layout/content.h"

namespace shardshift {
namespace {

using reshard::Layout;
using reshard::ModelConfig;

constexpr int64_t kFloatBytes = 4;
constexpr auto kRoles = static_cast<int64_t>(reshard::kOptimizerRoles.size());

}  // namespace

StateBytes BytesOf(const reshard::RankSize& size) {
  return {.parameters = kFloatBytes * size.parameters,
          .gradients = kFloatBytes * size.parameters,
          .optimizer = kFloatBytes * kRoles * size.owned};
}

nlohmann::json ToJson(const StateBytes& bytes) {
  return {{"parameters", bytes.parameters},
          {"gradients", bytes.gradients},
          {"optimizer_state", bytes.optimizer}};
}

std::string ModelText(const ModelConfig& model) {
  std::string text = absl::StrCat(
      model.num_layers, " layers, hidden size ", model.hidden_size, ", ",
      model.num_attention_heads, " heads, ", model.vocab_size, " tokens");
  if (model.has_experts()) {
    absl::StrAppend(&text, ", ", model.num_experts, " experts in ",
                    model.dense_layers.empty()
                        ? "each layer"
                        : CountText(model.num_expert_layers(), "layer"));
  }
  return text;
}

std::string CountText(int64_t count, absl::string_view what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

std::string SpanText(int64_t begin, int64_t end) {
  if (begin >= end) return "none";
  if (begin + 1 == end) return absl::StrCat(begin);
  return absl::StrCat(begin, "-", end - 1);
}

std::string LayersText(const std::vector<reshard::LayerRange>& chunks,
                       size_t max) {
  std::vector<std::string> spans;
  for (const reshard::LayerRange& chunk : chunks) {
    if (spans.size() == max) {
      spans.emplace_back("...");
      break;
    }
    spans.push_back(SpanText(chunk.begin, chunk.end));
  }
  return absl::StrJoin(spans, ", ");
}

std::string ExpertsText(const ModelConfig& model, const Layout& layout,
                        int64_t rank) {
  const int64_t stage = CoordinatesOf(layout, rank).pipeline;
  for (const reshard::LayerRange& chunk :
       LayersOfChunksOn(model, layout, stage)) {
    for (int64_t layer = chunk.begin; layer < chunk.end; ++layer) {
      if (!model.has_experts(layer)) continue;
      const reshard::ExpertRange experts =
          ExpertsOf(model, layout, ExpertCoordinatesOf(layout, rank).expert);
      return SpanText(experts.begin, experts.end);
    }
  }
  return "none";
}

std::string EndsText(const Layout& layout, int64_t stage) {
  std::vector<const char*> ends;
  if (stage == 0) ends.push_back("embedding");
  if (stage + 1 == layout.pipeline) ends.push_back("output");
  return absl::StrJoin(ends, ", ");
}

std::vector<AxisPlace> PlacesOf(const ModelConfig& model, const Layout& layout,
                                int64_t rank) {
  const reshard::RankCoordinates at = CoordinatesOf(layout, rank);
  std::vector<AxisPlace> places = {{"tensor", at.tensor, layout.tensor},
                                   {"pipeline", at.pipeline, layout.pipeline},
                                   {"data", at.data, layout.data}};
  if (!model.has_experts()) return places;
  const reshard::ExpertCoordinates of_experts =
      ExpertCoordinatesOf(layout, rank);
  places.push_back({"expert", of_experts.expert, layout.expert});
  places.push_back(
      {"expert tensor", of_experts.tensor, layout.expert_tensor_size()});
  places.push_back({"expert data", of_experts.data, layout.expert_data_size()});
  return places;
}

nlohmann::json PlacesJson(const ModelConfig& model, const Layout& layout,
                          int64_t rank) {
  nlohmann::json places = nlohmann::json::object();
  for (const AxisPlace& place : PlacesOf(model, layout, rank)) {
    places[absl::StrReplaceAll(place.axis, {{" ", "_"}})] = place.at;
  }
  return places;
}

}  // namespace shardshift
