// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/rank_state.h"

#include "reshard/layout/model_map.h"

namespace shardshift::reshard {

RankState MakeRankState(const ModelConfig& model, const Layout& layout,
                        int64_t rank) {
  return ModelMap(model, layout).StateOf(rank);
}

}  // namespace shardshift::reshard
