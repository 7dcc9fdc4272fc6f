// Making the index of parts that are written.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_INDEX_WRITER_H_
#define SHARDSHIFT_CKPT_INDEX_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/format/table.h"
#include "ckpt/writer.h"

namespace shardshift::ckpt {

// The table of the index, checked. It does not depend on the order of the
// receipts. Errors: InvalidArgument if they do not make whole tensors, or if
// one is of another checkpoint.
absl::StatusOr<Table> MergeReceipts(const CheckpointId& id,
                                    const std::vector<PartReceipt>& receipts,
                                    absl::string_view record);

// Creates the index `name` in `directory`, which holds the parts, and syncs
// it. It has views of the tensors if there are up to `max_viewed_fragments`.
absl::Status WriteIndex(const std::string& directory, absl::string_view name,
                        const Table& table, int64_t max_viewed_fragments);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_INDEX_WRITER_H_
