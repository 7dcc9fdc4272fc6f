// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/processes.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {

// A text travels behind its status code, a byte.
absl::StatusOr<std::vector<std::string>> AllGatherIfOk(
    Processes& processes, const absl::StatusOr<std::string>& mine) {
  std::string packed(1, static_cast<char>(mine.status().code()));
  packed += mine.ok() ? *mine : std::string(mine.status().message());
  SS_ASSIGN_OR_RETURN(std::vector<std::string> all,
                      processes.AllGather(packed));
  for (std::string& text : all) {
    const auto code = static_cast<absl::StatusCode>(text[0]);
    text.erase(0, 1);
    if (code != absl::StatusCode::kOk) return absl::Status(code, text);
  }
  return all;
}

absl::Status Agree(Processes& processes, const absl::Status& mine) {
  if (mine.ok()) return AllGatherIfOk(processes, std::string()).status();
  return AllGatherIfOk(processes, mine).status();
}

}  // namespace shardshift::reshard
