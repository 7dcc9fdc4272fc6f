// The flags of run_flags.h that `train` alone has.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_TRAINING_FLAGS_H_
#define SHARDSHIFT_TOOLS_TRAINING_FLAGS_H_

#include <CLI/CLI.hpp>

#include "tools/run_flags.h"

namespace shardshift {

void AddTrainingFlags(CLI::App& app, RunFlags& flags);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_TRAINING_FLAGS_H_
