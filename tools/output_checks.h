// Whether a run will be able to write what it is asked to.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_OUTPUT_CHECKS_H_
#define SHARDSHIFT_TOOLS_OUTPUT_CHECKS_H_

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace shardshift {

// Finds out before the first iteration, not after the last, that a path cannot
// be written. Writes nothing.
// Errors: those of the file system, naming the flag; InvalidArgument for a run
// directory below a file.
absl::Status CheckOutputs(const std::optional<std::string>& save,
                          const std::optional<std::string>& log_jsonl);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_OUTPUT_CHECKS_H_
