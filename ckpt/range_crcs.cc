// SPDX-License-Identifier: Apache-2.0
#include "ckpt/range_crcs.h"

#include <zlib.h>

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

uint32_t UpdateCrc32(uint32_t crc32, std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(
      crc32_z(crc32, reinterpret_cast<const unsigned char*>(bytes.data()),
              bytes.size()));
}

}  // namespace shardshift::ckpt
