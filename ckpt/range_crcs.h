// CRC-32s of what was read of foreign files: whoever knows what an archive says
// of its bytes need not read them again. Thread-safe.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_RANGE_CRCS_H_
#define SHARDSHIFT_CKPT_RANGE_CRCS_H_

#include <cstdint>
#include <map>
#include <mutex>

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

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_RANGE_CRCS_H_
