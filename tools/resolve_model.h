// The model of a run: what flags say, and whatever else tells it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_RESOLVE_MODEL_H_
#define SHARDSHIFT_TOOLS_RESOLVE_MODEL_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/layout/model_config.h"
#include "tools/known_model.h"
#include "tools/overlay.h"
#include "tools/run_flags.h"

namespace shardshift {

// Errors: InvalidArgument naming the flag where it is not given.
absl::Status Require(const char* flag, bool given,
                     const char* why = "a new run needs it");

// Puts what the flags say over what is there.
void SetModel(const ModelFlags& flags, reshard::ModelConfig& model,
              Overlay& overlay);

// What --hf-config and the weights to start from say.
absl::StatusOr<std::optional<KnownModel>> FindKnownModel(
    const ModelFlags& flags, const std::optional<KnownModel>& weights);

// A model that only flags describe.
absl::Status MakeModel(const RunFlags& flags, reshard::ModelConfig& model);

// A known model, which flags may only repeat.
absl::Status TakeModel(const KnownModel& known, const ModelFlags& flags,
                       reshard::ModelConfig& model);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_RESOLVE_MODEL_H_
