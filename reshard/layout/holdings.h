// Who holds what: the boxes that the ranks of a layout own, with the replicas
// of each.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_LAYOUT_HOLDINGS_H_
#define SHARDSHIFT_RESHARD_LAYOUT_HOLDINGS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "reshard/layout/layout.h"
#include "reshard/layout/model_config.h"
#include "reshard/layout/model_map.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

// A piece that several ranks own, at one place of their memory.
struct Holding {
  Piece piece;
  int64_t buffer = 0;  // index into RankState::buffers
  RankRun ranks;
};

// What every rank owns, by tensor, box and first rank: holdings of one box are
// neighbours. REQUIRES: Validate(model, layout) is OK.
std::vector<Holding> HoldingsOf(const ModelConfig& model, const Layout& layout);

// All holdings of one box.
using Replicas = std::span<const Holding>;

// The boxes, in order. REQUIRES: `holdings` are as HoldingsOf gives them.
std::vector<Replicas> GroupByBox(const std::vector<Holding>& holdings);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_LAYOUT_HOLDINGS_H_
