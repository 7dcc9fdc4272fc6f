// What several views of a layout say of a rank.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_RANK_WORDS_H_
#define SHARDSHIFT_TOOLS_RANK_WORDS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/model_map.h"
#include "reshard/layout/stages.h"

namespace shardshift {

// Of training state as fp32: what an element of a rank's flat buffers takes.
struct StateBytes {
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;  // master weights and moments of what the rank owns

  int64_t total() const { return parameters + gradients + optimizer; }
};
StateBytes BytesOf(const reshard::RankSize& size);
nlohmann::json ToJson(const StateBytes& bytes);

// "4 layers, hidden size 16, 4 heads, 251 tokens", and how many experts.
std::string ModelText(const reshard::ModelConfig& model);

// "0-3, 8", or "none"; more than `max` ranges are cut short.
std::string LayersText(const std::vector<reshard::LayerRange>& chunks,
                       size_t max = 1024);

// The experts that a rank holds in each layer of its stage that has any:
// "0-3", or "none".
std::string ExpertsText(const reshard::ModelConfig& model,
                        const reshard::Layout& layout, int64_t rank);

// What a stage holds besides its layers: "embedding", "output", both, or "".
std::string EndsText(const reshard::Layout& layout, int64_t stage);

// "1 rank", "2 ranks".
std::string CountText(int64_t count, absl::string_view what);

// "4-7", "4", or "none".
std::string SpanText(int64_t begin, int64_t end);

// A rank's place on an axis, under the name of the axis. Those of the experts
// follow if the model has some.
struct AxisPlace {
  const char* axis;
  int64_t at = 0;
  int64_t size = 1;
};
std::vector<AxisPlace> PlacesOf(const reshard::ModelConfig& model,
                                const reshard::Layout& layout, int64_t rank);
// {"tensor": 0, ..., "expert_data": 1}
nlohmann::json PlacesJson(const reshard::ModelConfig& model,
                          const reshard::Layout& layout, int64_t rank);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_RANK_WORDS_H_
