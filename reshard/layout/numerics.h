// The numerics constants of a run: the leaf counts of its summation trees, and
// the padded vocabulary. Chosen once, at the first start, from quantities that
// no layout changes, then stored and kept; a layout must fit them.
// Source: invariant-numerics.md 1 and 7.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_LAYOUT_NUMERICS_H_
#define SHARDSHIFT_RESHARD_LAYOUT_NUMERICS_H_

#include <cstdint>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/model_config.h"

namespace shardshift::reshard {

struct NumericsConstants {
  // Leaves of every sum that tensor parallelism can split (Gt).
  int64_t tensor_granularity = 1;
  // Groups of samples in a global batch, each summed on its own (Gd).
  int64_t data_granularity = 1;

  bool operator==(const NumericsConstants&) const = default;
};

// gcd of 8, the sequence length and every width that tensor parallelism
// splits.
int64_t ChooseTensorGranularity(const ModelConfig& model, int64_t seq_length);

// The largest divisor of the global batch not above max(16, data_ranks).
int64_t ChooseDataGranularity(int64_t global_batch_size, int64_t data_ranks);

// The vocabulary rounded up to a multiple of
// make_divisible_by * max(tensor granularity, tensor-parallel ranks at the
// first start).
// Errors: InvalidArgument if that overflows.
absl::StatusOr<int64_t> ChoosePaddedVocabSize(int64_t vocab_size,
                                              int64_t make_divisible_by,
                                              int64_t tensor_granularity,
                                              int64_t tensor_ranks);

// Whether a run with these constants can use a layout: TP a power of two up to
// the tensor granularity, expert TP as well; copies of the experts on whole
// tensor-parallel groups; DP a divisor of the data granularity.
// Errors: InvalidArgument naming quantity, constant and flag to change.
absl::Status CheckLayoutFits(const NumericsConstants& numerics,
                             const Layout& layout);

// Whether the constants divide what they cut.
// Errors: InvalidArgument naming flag and quantity.
absl::Status Validate(const NumericsConstants& numerics,
                      const ModelConfig& model, int64_t seq_length,
                      int64_t global_batch_size);

nlohmann::json ToJson(const NumericsConstants& numerics);
absl::StatusOr<NumericsConstants> NumericsFromJson(const nlohmann::json& json);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_LAYOUT_NUMERICS_H_
