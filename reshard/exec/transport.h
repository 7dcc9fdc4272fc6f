// What MemoryToMemory needs of ranks that talk to each other: the least that
// threads, processes and devices all can.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_TRANSPORT_H_
#define SHARDSHIFT_RESHARD_EXEC_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace shardshift::reshard {

struct Outgoing {
  int64_t to = 0;
  std::span<const std::byte> bytes;
};

struct Incoming {
  int64_t from = 0;
  std::span<std::byte> bytes;
};

// Used by one thread, its rank. Both calls are collective.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;

  // Sends and receives, at most one message to and from each other rank, whose
  // sizes the two sides know; also none at all. Returns when what came is
  // there, and what goes may change.
  virtual absl::Status Exchange(std::span<const Outgoing> outgoing,
                                std::span<const Incoming> incoming) = 0;

  // Waits for all ranks: OK if all pass OK, else on all ranks one of the
  // errors, naming its rank.
  virtual absl::Status Agree(const absl::Status& status) = 0;
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_TRANSPORT_H_
