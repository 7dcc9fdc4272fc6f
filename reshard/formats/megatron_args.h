// The arguments of the run that wrote a Megatron checkpoint.
// Source: checkpoint-formats.md 3.7, distributed-optimizer.md 1.2.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_MEGATRON_ARGS_H_
#define SHARDSHIFT_RESHARD_FORMATS_MEGATRON_ARGS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "reshard/formats/megatron_names.h"
#include "reshard/formats/pickle_value.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/model_config.h"

namespace shardshift::reshard {

struct MegatronArgs {
  ModelConfig model;
  Layout layout;  // of the writer
  // Of the flat buffers of the first stage's first chunk; nullopt: one bucket.
  std::optional<int64_t> bucket_size;
  int64_t iteration = 0;
  int64_t consumed_samples = 0;
  nlohmann::json arguments;  // all of them, each as PickleToJson has it
};

// `vocab_size`: the true one, where the arguments do not tell it.
// Errors: DataLoss naming an argument that is missing or mistyped;
// Unimplemented for one that makes the model another than ours;
// FailedPrecondition if the true vocabulary is unknown; as both Validates.
absl::StatusOr<MegatronArgs> ParseMegatronArgs(
    nlohmann::json arguments, std::optional<int64_t> vocab_size);
// Of a pickled argparse.Namespace.
absl::StatusOr<MegatronArgs> ParseMegatronArgs(
    const PickleValue& args, std::optional<int64_t> vocab_size);

// How the layers of a run with these arguments are built.
LayerStyle LayerStyleOf(const nlohmann::json& arguments);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_MEGATRON_ARGS_H_
