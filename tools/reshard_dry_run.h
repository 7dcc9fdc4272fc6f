// What `reshard --dry-run` tells.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_RESHARD_DRY_RUN_H_
#define SHARDSHIFT_TOOLS_RESHARD_DRY_RUN_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "ckpt/format/table.h"
#include "reshard/exec/reshard.h"

namespace shardshift {

// `table` is the source's; more_bytes of memory come on top of the plan's.
std::string DryRunText(const reshard::DryRunReport& report, int64_t more_bytes,
                       const ckpt::Table& table);
nlohmann::json DryRunJson(const reshard::DryRunReport& report,
                          int64_t more_bytes, const ckpt::Table& table);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_RESHARD_DRY_RUN_H_
