// SPDX-License-Identifier: Apache-2.0
#include "ckpt/range_crcs.h"

namespace shardshift::ckpt {

void RangeCrcs::Add(int64_t part, int64_t offset_bytes, const RangeCrc& range) {
  const std::lock_guard lock(mutex_);
  ranges_[part].insert_or_assign(offset_bytes, range);
}

std::map<int64_t, RangeCrc> RangeCrcs::Of(int64_t part) const {
  const std::lock_guard lock(mutex_);
  const auto it = ranges_.find(part);
  return it == ranges_.end() ? std::map<int64_t, RangeCrc>() : it->second;
}

}  // namespace shardshift::ckpt
