// SPDX-License-Identifier: Apache-2.0
#include "tools/comm_processes.h"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

#include "absl/status/status.h"
#include "ckpt/core/status_macros.h"

namespace shardshift {

absl::StatusOr<std::vector<std::string>> CommProcesses::AllGather(
    const std::string& mine) {
  const auto num_bytes = static_cast<int64_t>(mine.size());
  std::vector<int64_t> sizes(comm_.size());
  SS_RETURN_IF_ERROR(comm_.AllGather(std::as_bytes(std::span(&num_bytes, 1)),
                                     std::as_writable_bytes(std::span(sizes))));
  std::string joined(std::accumulate(sizes.begin(), sizes.end(), size_t{0}),
                     '\0');
  SS_RETURN_IF_ERROR(
      comm_.AllGatherV(std::as_bytes(std::span(mine)), sizes,
                       std::as_writable_bytes(std::span(joined))));
  std::vector<std::string> all;
  size_t at = 0;
  for (const int64_t size : sizes) {
    all.push_back(joined.substr(at, size));
    at += size;
  }
  return all;
}

}  // namespace shardshift
