// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/sample_order.h"

#include "absl/strings/str_cat.h"
#include "kernels/random.h"
#include "trainer/data/token_source.h"

namespace shardshift::trainer {

absl::string_view DataOrderName(DataOrder order) {
  return order == DataOrder::kShuffled ? "shuffled" : "sequential";
}

absl::StatusOr<DataOrder> ParseDataOrder(absl::string_view name) {
  for (const DataOrder order : {DataOrder::kShuffled, DataOrder::kSequential}) {
    if (name == DataOrderName(order)) return order;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "data order \"", name, "\", expected shuffled or sequential"));
}

SampleOrder::SampleOrder(DataOrder order, uint64_t seed, int64_t num_samples)
    : shuffled_(order == DataOrder::kShuffled &&
                num_samples != kUnlimitedSamples),
      key_(kernels::RandomKey(seed, "sample order")),
      num_samples_(num_samples) {}

SamplePosition SampleOrder::At(int64_t consumed_samples) const {
  SamplePosition position = {consumed_samples / num_samples_,
                             consumed_samples % num_samples_};
  if (shuffled_) {
    position.index = static_cast<int64_t>(
        kernels::Permute(kernels::RandomBits(key_, position.epoch),
                         position.index, num_samples_));
  }
  return position;
}

}  // namespace shardshift::trainer
