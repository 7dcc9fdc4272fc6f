// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/megatron_ranks.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "ckpt/core/status_macros.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/layout/layout.h"

namespace shardshift::reshard {

std::string LegacyFolderName(const Layout& layout, const ModelRank& rank) {
  std::string name = absl::StrFormat("mp_rank_%02d", rank.tensor);
  if (layout.pipeline > 1) absl::StrAppendFormat(&name, "_%03d", rank.pipeline);
  if (layout.expert > 1) absl::StrAppendFormat(&name, "_%03d", rank.expert);
  return name;
}

int64_t WriterOf(const Layout& layout, const ModelRank& rank) {
  if (layout.expert == 1) {
    return RankOf(layout, RankCoordinates{.tensor = rank.tensor,
                                          .pipeline = rank.pipeline});
  }
  return RankOf(layout, ExpertCoordinates{.tensor = rank.tensor,
                                          .expert = rank.expert,
                                          .pipeline = rank.pipeline});
}

std::vector<std::vector<Parameter>> ParametersOfRank(const ModelMap& map,
                                                     const ModelRank& rank) {
  std::vector<std::vector<Parameter>> chunks;
  for (const BufferPlace& place : map.Places()) {
    if (place.stage != rank.pipeline || place.tensor != rank.tensor) continue;
    if (place.experts && place.expert != rank.expert) continue;
    LocalBuffer buffer = map.MakeBuffer(place);
    chunks.resize(std::max<size_t>(chunks.size(), place.chunk + 1));
    std::vector<Parameter>& all = chunks[place.chunk];
    std::move(buffer.parameters.begin(), buffer.parameters.end(),
              std::back_inserter(all));
  }
  return chunks;
}

absl::StatusOr<ForeignCheckpoint> FinishMegatron(
    const std::string& directory, Format format, const MegatronArgs& args,
    const MegatronCommon& common, const OptimizerSteps& steps, bool has_state,
    ckpt::ForeignFilesBuilder& builder) {
  absl::StatusOr<std::optional<int64_t>> step = steps.TheOne();
  if (!step.ok()) return Annotate(step.status(), directory);
  const nlohmann::json state =
      common.State(args, has_state ? *step : std::optional<int64_t>());
  const nlohmann::json record = {{"format", std::string(InfoOf(format).name)},
                                 {"layout", ToJson(args.layout)}};
  ForeignCheckpoint result;
  SS_ASSIGN_OR_RETURN(
      result.files,
      builder.Build(args.iteration, StateText(state), StateText(record)));
  result.left_out.emplace_back("random number state (rng_state)");
  return result;
}

}  // namespace shardshift::reshard
