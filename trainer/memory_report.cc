// SPDX-License-Identifier: Apache-2.0
#include "trainer/memory_report.h"

#include <algorithm>
#include <span>
#include <type_traits>

#include "absl/strings/str_format.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::trainer {
namespace {

nlohmann::ordered_json ToJson(const RankMemory& memory) {
  return {{"parameter_bytes", memory.parameter_bytes},
          {"gradient_bytes", memory.gradient_bytes},
          {"optimizer_bytes", memory.optimizer_bytes},
          {"activation_bytes", memory.activation_bytes}};
}

}  // namespace

absl::StatusOr<std::vector<MemoryFigures>> GatherMemory(
    Communicator& world, const MemoryFigures& mine) {
  static_assert(std::is_trivially_copyable_v<MemoryFigures>);
  std::vector<MemoryFigures> all(world.size());
  SS_RETURN_IF_ERROR(world.AllGather(std::as_bytes(std::span(&mine, 1)),
                                     std::as_writable_bytes(std::span(all))));
  return all;
}

std::string StartLine(const reshard::Layout& layout, int64_t rank,
                      const MemoryFigures& figures) {
  const reshard::RankCoordinates at = reshard::CoordinatesOf(layout, rank);
  return absl::StrFormat(
      "rank %d (tp %d, pp %d, dp %d): parameters %d bytes, gradients %d bytes, "
      "optimizer state %d bytes; activations up to %d bytes by formula",
      rank, at.tensor, at.pipeline, at.data, figures.measured.parameter_bytes,
      figures.measured.gradient_bytes, figures.measured.optimizer_bytes,
      figures.formula.activation_bytes);
}

std::string PeakLine(const std::vector<MemoryFigures>& ranks) {
  const auto most = std::max_element(
      ranks.begin(), ranks.end(),
      [](const MemoryFigures& a, const MemoryFigures& b) {
        return a.measured.activation_bytes < b.measured.activation_bytes;
      });
  return absl::StrFormat(
      "activations took up to %d bytes, on rank %d; %d by formula",
      most->measured.activation_bytes, most - ranks.begin(),
      most->formula.activation_bytes);
}

nlohmann::ordered_json ToJson(const std::vector<MemoryFigures>& ranks) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    json.push_back({{"rank", rank},
                    {"measured", ToJson(ranks[rank].measured)},
                    {"formula", ToJson(ranks[rank].formula)}});
  }
  return json;
}

}  // namespace shardshift::trainer
