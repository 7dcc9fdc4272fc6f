// Checkpoints of any model and layout without training one: for tests,
// benchmarks and rehearsals.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_SYNTH_H_
#define SHARDSHIFT_RESHARD_EXEC_SYNTH_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "ckpt/format/table.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/model_config.h"

namespace shardshift::reshard {

// The value of element `index` (row-major) of a logical tensor: a finite float
// within [-1, 1], scattered by a hash of name, role and index, so that what is
// misplaced, swapped or repeated shows. Never negative under "exp_avg_sq".
float SynthValue(absl::string_view tensor, absl::string_view role,
                 int64_t index);

// Writes run directory `run_dir` with step `step` as a trainer on `layout`
// would, in fixed memory.
// Errors: AlreadyExists if `run_dir` exists; InvalidArgument for a model or
// layout that cannot be.
absl::Status WriteSynthCheckpoint(const std::string& run_dir, int64_t step,
                                  const ModelConfig& model,
                                  const Layout& layout,
                                  const nlohmann::json& state,
                                  const nlohmann::json& record,
                                  ckpt::Codec codec = ckpt::Codec::kNone);

// The index of such a checkpoint alone, without parts: see ckpt/index_alone.h.
// Errors: the same.
absl::Status WriteSynthIndex(const std::string& run_dir, int64_t step,
                             const ModelConfig& model, const Layout& layout,
                             const nlohmann::json& state,
                             const nlohmann::json& record);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_SYNTH_H_
