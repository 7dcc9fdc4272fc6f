// What `reshard --dry-run` tells.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_RESHARD_DRY_RUN_H_
#define SHARDSHIFT_TOOLS_RESHARD_DRY_RUN_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "reshard/exec/reshard.h"
#include "reshard/formats/open_source.h"

namespace shardshift {

// `more_bytes` of memory come on top of the plan's.
std::string DryRunText(const reshard::DryRunReport& report, int64_t more_bytes,
                       const reshard::OpenedSource& source);
nlohmann::json DryRunJson(const reshard::DryRunReport& report,
                          int64_t more_bytes,
                          const reshard::OpenedSource& source);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_RESHARD_DRY_RUN_H_
