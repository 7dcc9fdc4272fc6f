// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/megatron_ranks.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "ckpt/core/status_macros.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/layout/layout.h"

namespace shardshift::reshard {

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
  if (has_state) {
    result.left_out.emplace_back(
        "weights of the model, which were compared with the masters");
  }
  return result;
}

}  // namespace shardshift::reshard
