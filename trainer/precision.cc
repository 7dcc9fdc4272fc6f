// SPDX-License-Identifier: Apache-2.0
#include "trainer/precision.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace shardshift::trainer {

absl::string_view Name(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return "fp32";
    case Precision::kBf16:
      return "bf16";
    case Precision::kFp16:
      return "fp16";
  }
  return "unknown";
}

absl::StatusOr<Precision> ParsePrecision(absl::string_view name) {
  for (const auto precision :
       {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    if (name == Name(precision)) return precision;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\" is not fp32, bf16 or fp16"));
}

void RoundTo(Precision precision, const kernels::Kernels& kernels, float* x,
             int64_t count) {
  switch (precision) {
    case Precision::kFp32:
      return;
    case Precision::kBf16:
      kernels.round_to_bf16({.x = x, .count = count});
      return;
    case Precision::kFp16:
      kernels.round_to_fp16({.x = x, .count = count});
      return;
  }
}

}  // namespace shardshift::trainer
