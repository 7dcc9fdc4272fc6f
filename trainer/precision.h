// The number format that a run computes in. Between any two steps of the
// computation that round, values are rounded to it, and kept in floats; sums
// are fp32 until they are complete, as are master weights, gradients and
// optimizer state. Which steps round: docs/precision.md.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_PRECISION_H_
#define SHARDSHIFT_TRAINER_PRECISION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/kernels.h"

namespace shardshift::trainer {

enum class Precision { kFp32, kBf16, kFp16 };

// "fp32", "bf16", "fp16".
absl::string_view Name(Precision precision);
// Errors: InvalidArgument for another name.
absl::StatusOr<Precision> ParsePrecision(absl::string_view name);

// Rounds x[0, count); fp32 leaves it as it is.
void RoundTo(Precision precision, const kernels::Kernels& kernels, float* x,
             int64_t count);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_PRECISION_H_
