// The trainer's communicator as that which carries moves of state.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_COMM_TRANSPORT_H_
#define SHARDSHIFT_TRAINER_COMM_TRANSPORT_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "reshard/exec/transport.h"
#include "trainer/comm/communicator.h"

namespace shardshift::trainer {

class CommTransport : public reshard::Transport {
 public:
  // `comm` outlives this.
  explicit CommTransport(Communicator& comm) : comm_(comm) {}

  int64_t rank() const override { return comm_.rank(); }
  int64_t size() const override { return comm_.size(); }
  absl::Status Exchange(std::span<const reshard::Outgoing> outgoing,
                        std::span<const reshard::Incoming> incoming) override;
  absl::Status Agree(const absl::Status& status) override;

 private:
  Communicator& comm_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_COMM_TRANSPORT_H_
