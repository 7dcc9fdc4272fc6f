// What is known of a finished part.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_PART_RECEIPT_H_
#define SHARDSHIFT_CKPT_PART_RECEIPT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "ckpt/format/table.h"

namespace shardshift::ckpt {

// What a finished part tells the one who commits. Plain data.
struct PartReceipt {
  Part part;
  Table table;  // the part's own
};

// The receipt that the writer of a part file got, from the file; to be known
// as part `number`. Errors: DataLoss if anything but payload is damaged.
absl::StatusOr<PartReceipt> ReadReceipt(const std::string& path,
                                        int64_t number);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_PART_RECEIPT_H_
