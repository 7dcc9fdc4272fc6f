// Parts of a copy that the source has already, file for file.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_PART_LINKS_H_
#define SHARDSHIFT_RESHARD_EXEC_PART_LINKS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ckpt/part_receipt.h"
#include "ckpt/reader.h"
#include "reshard/exec/copy_plan.h"

namespace shardshift::reshard {

// By part of `plan`: the number of the part of the source that holds the same
// fragments, stored as by `codec`.
std::vector<std::optional<int64_t>> FindTwins(const ckpt::Reader& source,
                                              const CopyPlan& plan,
                                              ckpt::Codec codec);

struct LinkedParts {
  std::vector<ckpt::PartReceipt> receipts;
  CopyPlan rest;  // what is left to copy
};

// Gives twins of parts of `plan` a second name in `directory`; their payload is
// not read. Where the file system cannot, the part is left to copy.
// Errors: DataLoss if such a file is damaged in front.
absl::StatusOr<LinkedParts> LinkParts(const ckpt::Reader& source,
                                      const CopyPlan& plan, ckpt::Codec codec,
                                      const std::string& directory);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_PART_LINKS_H_
