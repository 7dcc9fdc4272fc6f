// What `reshard explain --rank` tells of one rank.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_EXPLAIN_RANK_H_
#define SHARDSHIFT_TOOLS_EXPLAIN_RANK_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reshard/exec/part_moves.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/model_config.h"
#include "reshard/layout/parameters.h"
#include "reshard/layout/rank_state.h"

namespace shardshift {

struct RankReport {
  reshard::ModelConfig model;
  reshard::Layout layout;
  int64_t rank = 0;
  std::vector<reshard::LogicalTensor> tensors;
  reshard::RankState state;
  reshard::ReadTotals reads = {};       // of the checkpoint, to load the rank
  std::vector<std::string> files = {};  // names of `reads.parts`
};

// Without `reads` and `files`. REQUIRES: Validate(model, layout) is OK, and
// `rank` is one.
RankReport ReportOf(const reshard::ModelConfig& model,
                    const reshard::Layout& layout, int64_t rank);

std::string RankText(const RankReport& report);

// Positions and ranges count elements of the flat buffer, ends excluded. The
// boxes of its parameters and `padding` cover each element once; "owned" are
// ranges of it, and "owned_boxes" what lies in them.
nlohmann::json RankJson(const RankReport& report);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_EXPLAIN_RANK_H_
