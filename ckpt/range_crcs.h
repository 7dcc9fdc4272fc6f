// CRC-32s of what was read of foreign files: whoever knows what an archive says
// of its bytes need not read them again. Thread-safe.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_RANGE_CRCS_H_
#define SHARDSHIFT_CKPT_RANGE_CRCS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>

namespace shardshift::ckpt {

struct RangeCrc {
  int64_t num_bytes = 0;
  uint32_t crc32 = 0;  // that of zip
};

class RangeCrcs {
 public:
  void Add(int64_t part, int64_t offset_bytes, const RangeCrc& range);

  // By offset. Ranges may overlap.
  std::map<int64_t, RangeCrc> Of(int64_t part) const;

 private:
  mutable std::mutex mutex_;
  std::map<int64_t, std::map<int64_t, RangeCrc>> ranges_;  // guarded by mutex_
};

// Goes on with the CRC-32 of what came before; 0 of nothing.
uint32_t UpdateCrc32(uint32_t crc32, std::span<const std::byte> bytes);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_RANGE_CRCS_H_
