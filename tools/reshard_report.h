// What `reshard` says at the end.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_RESHARD_REPORT_H_
#define SHARDSHIFT_TOOLS_RESHARD_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "reshard/exec/reshard.h"
#include "reshard/formats/format.h"
#include "reshard/formats/open_source.h"

namespace shardshift {

struct FinishedReshard {
  const reshard::ReshardReport& report;
  const reshard::OpenedSource& source;
  reshard::Format to;
  const std::string& destination;
  double seconds;
};

std::string ReportText(const FinishedReshard& finished);
nlohmann::json ReportJson(const FinishedReshard& finished);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_RESHARD_REPORT_H_
