// The order in which a run consumes its samples: a pure function of (order,
// seed, number of samples), never of the layout or of the length of the run.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_DATA_SAMPLE_ORDER_H_
#define SHARDSHIFT_TRAINER_DATA_SAMPLE_ORDER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shardshift::trainer {

enum class DataOrder { kShuffled, kSequential };

// "shuffled", "sequential".
absl::string_view DataOrderName(DataOrder order);
// Errors: InvalidArgument for any other name.
absl::StatusOr<DataOrder> ParseDataOrder(absl::string_view name);

// Where the k-th consumed sample comes from.
struct SamplePosition {
  int64_t epoch;
  int64_t index;  // in [0, num_samples)
  bool operator==(const SamplePosition&) const = default;
};

class SampleOrder {
 public:
  // num_samples: of one epoch; kUnlimitedSamples walks 0, 1, 2, ... in either
  // order. REQUIRES: num_samples > 0.
  SampleOrder(DataOrder order, uint64_t seed, int64_t num_samples);

  // Every run of num_samples samples that begins at a multiple of num_samples
  // is one epoch and holds each index once. REQUIRES: consumed_samples >= 0.
  SamplePosition At(int64_t consumed_samples) const;

 private:
  bool shuffled_;
  uint64_t key_;
  int64_t num_samples_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_DATA_SAMPLE_ORDER_H_
