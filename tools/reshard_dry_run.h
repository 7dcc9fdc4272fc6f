// What `reshard --dry-run` tells.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_RESHARD_DRY_RUN_H_
#define SHARDSHIFT_TOOLS_RESHARD_DRY_RUN_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "reshard/exec/reshard.h"
#include "reshard/formats/format.h"
#include "reshard/formats/open_source.h"

namespace shardshift {

struct PlannedReshard {
  const reshard::DryRunReport& report;
  const reshard::OpenedSource& source;
  reshard::Format to;
  int64_t more_bytes = 0;  // of memory, on top of the plan's
};

std::string DryRunText(const PlannedReshard& planned);
nlohmann::json DryRunJson(const PlannedReshard& planned);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_RESHARD_DRY_RUN_H_
