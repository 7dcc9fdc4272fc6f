// The table of a part before it is written.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_PART_TABLE_H_
#define SHARDSHIFT_CKPT_PART_TABLE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ckpt/format/table.h"
#include "ckpt/writer.h"

namespace shardshift::ckpt {

// Blocks have no places yet, fingerprints and checksums are zero.
struct PartTable {
  Table table;
  std::vector<int64_t> index;  // of each spec's fragment in the table
};

// Errors: InvalidArgument for specs that contradict each other or name a box
// twice, for no specs, or for a negative number.
absl::StatusOr<PartTable> MakePartTable(int64_t part, const CheckpointId& id,
                                        const std::vector<FragmentSpec>& specs,
                                        Codec codec);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_PART_TABLE_H_
