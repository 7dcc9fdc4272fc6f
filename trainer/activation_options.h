// How the ranks of a run keep activations. Nothing of it but the precision
// changes a bit of any result, and all of it may change at any step.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_ACTIVATION_OPTIONS_H_
#define SHARDSHIFT_TRAINER_ACTIVATION_OPTIONS_H_

#include <cstdint>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/precision.h"

namespace shardshift::trainer {

// What the backward pass computes again instead of finding it kept: nothing;
// the attention probabilities; or whole layers from their inputs.
enum class RecomputeGranularity { kNone, kSelective, kFull };

// Which layers of a chunk full recomputation takes: all, in groups of which the
// input is kept; or the first ones, each on its own.
enum class RecomputeMethod { kUniform, kBlock };

// "none", "selective", "full"; "uniform", "block".
absl::string_view Name(RecomputeGranularity granularity);
absl::string_view Name(RecomputeMethod method);
// Errors: InvalidArgument for another name.
absl::StatusOr<RecomputeGranularity> ParseRecomputeGranularity(
    absl::string_view name);
absl::StatusOr<RecomputeMethod> ParseRecomputeMethod(absl::string_view name);

struct Recompute {
  RecomputeGranularity granularity = RecomputeGranularity::kNone;
  // Of full recomputation.
  RecomputeMethod method = RecomputeMethod::kUniform;
  int64_t num_layers = 1;  // of a group; or how many are recomputed

  bool operator==(const Recompute&) const = default;
};

struct ActivationOptions {
  // Tensor-parallel ranks share out the positions between the blocks
  // (layers/sequence_shards.h). Without effect on one such rank.
  bool sequence_parallel = false;
  Recompute recompute = {};
  // Of all that is computed with, weights too.
  Precision precision = Precision::kFp32;

  bool operator==(const ActivationOptions&) const = default;
};

// Puts the precision, and of the rest what is not the default, into a
// checkpoint's record.
void AddToRecord(const ActivationOptions& options, nlohmann::json& record);

// What a record says; what it does not tell has its default.
// Errors: DataLoss naming the key that is mistyped or out of range.
absl::StatusOr<ActivationOptions> ActivationsFromRecord(
    const nlohmann::json& record);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_ACTIVATION_OPTIONS_H_
