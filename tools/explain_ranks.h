// What `reshard explain` tells of all ranks together.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_EXPLAIN_RANKS_H_
#define SHARDSHIFT_TOOLS_EXPLAIN_RANKS_H_

#include <nlohmann/json.hpp>
#include <string>

#include "reshard/layout/layout.h"
#include "reshard/layout/model_config.h"

namespace shardshift {

// A line for each rank: where it is, its layers and experts, its bytes.
// REQUIRES, of both: Validate(model, layout) is OK.
std::string RanksText(const reshard::ModelConfig& model,
                      const reshard::Layout& layout);
nlohmann::json RanksJson(const reshard::ModelConfig& model,
                         const reshard::Layout& layout);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_EXPLAIN_RANKS_H_
