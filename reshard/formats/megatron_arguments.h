// The arguments that a Megatron checkpoint which is to be written was made
// with: those of the source's run if Megatron's own, else made from what our
// state says, and all that the target layout decides.
// Source: checkpoint-formats.md 3.7; megatron/training/arguments.py at
// core_v0.16.1.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_MEGATRON_ARGUMENTS_H_
#define SHARDSHIFT_RESHARD_FORMATS_MEGATRON_ARGUMENTS_H_

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/dtype.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/layout/layout.h"

namespace shardshift::reshard {

// What `path`, keys one in the other, has of a state; null if there is none.
const nlohmann::json& StateValue(const nlohmann::json& state,
                                 std::initializer_list<const char*> path);

struct ArgumentsChoice {
  Layout layout;
  ckpt::DType weight_dtype = ckpt::DType::kBF16;
  bool has_optimizer = true;
  int64_t iteration = 0;
  absl::string_view format;  // as --ckpt-format has it
};

// Each as PickleToJson has it; `rank` is set for each file.
// REQUIRES: ValidateStages(state.model, choice.layout) is OK.
nlohmann::json ArgumentsFor(const CheckpointState& state,
                            const ArgumentsChoice& choice);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_MEGATRON_ARGUMENTS_H_
