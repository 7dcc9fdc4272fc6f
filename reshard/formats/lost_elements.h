// Elements of optimizer state that are in no file of a checkpoint, and what is
// put in their place.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_LOST_ELEMENTS_H_
#define SHARDSHIFT_RESHARD_FORMATS_LOST_ELEMENTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ckpt/core/box.h"
#include "ckpt/foreign_files.h"
#include "ckpt/reader.h"
#include "reshard/formats/foreign_checkpoint.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

// The same elements of every role. One thread at a time.
class LostElements {
 public:
  // They are kept in memory: 64 MiB of them.
  static constexpr int64_t kMaxElements = int64_t{1} << 24;

  // REQUIRES: `tensors` outlives this.
  explicit LostElements(const std::vector<LogicalTensor>& tensors)
      : tensors_(tensors) {}

  // Boxes do not overlap. Errors: ResourceExhausted beyond kMaxElements.
  absl::Status Add(int64_t tensor, ckpt::Box box);

  // Adds all of them to the tensors of `builder`: masters are the weights,
  // which come as fp32 from `weights`, the moments 0. Errors: those of reading.
  absl::Status FillIn(const ckpt::Reader& weights,
                      ckpt::ForeignFilesBuilder& builder) const;

  // In the order of the tensors.
  std::vector<LostFromTensor> ByTensor() const;

 private:
  struct Place {
    int64_t tensor = 0;
    ckpt::Box box;
  };

  const std::vector<LogicalTensor>& tensors_;
  std::vector<Place> places_;
  int64_t num_elements_ = 0;
};

// Notes, and what is left out, from `read.lost`.
void DescribeLost(ForeignCheckpoint& read);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_LOST_ELEMENTS_H_
