// Blocks of payload that are read for what they tell, not for their values.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_PAYLOAD_BLOCK_H_
#define SHARDSHIFT_CKPT_PAYLOAD_BLOCK_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ckpt/core/fingerprint.h"
#include "ckpt/format/table.h"
#include "ckpt/io/file.h"

namespace shardshift::ckpt {

// A block to be checked, and what was found.
struct PayloadBlock {
  int64_t fragment = 0;  // index into Table::fragments
  int64_t block = 0;
  absl::Status status = {};
  Fingerprint fingerprint = {};
  uint32_t crc32 = 0;  // of a foreign file's

  // Reads it out of its file. Blocks are independent.
  void Check(const File& file, const Table& table);
};

// All of them, in the table's order.
std::vector<PayloadBlock> BlocksOf(const Table& table);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_PAYLOAD_BLOCK_H_
