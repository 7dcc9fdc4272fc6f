// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm_transport.h"

#include "ckpt/core/status_macros.h"

namespace shardshift::trainer {
namespace {

constexpr int64_t kTag = 0x73746174;  // apart from what a schedule sends

}  // namespace

absl::Status CommTransport::Exchange(
    std::span<const reshard::Outgoing> outgoing,
    std::span<const reshard::Incoming> incoming) {
  for (const reshard::Outgoing& message : outgoing) {
    SS_RETURN_IF_ERROR(
        comm_.Send(static_cast<int>(message.to), kTag, message.bytes));
  }
  for (const reshard::Incoming& message : incoming) {
    SS_RETURN_IF_ERROR(
        comm_.Recv(static_cast<int>(message.from), kTag, message.bytes));
  }
  return absl::OkStatus();
}

absl::Status CommTransport::Agree(const absl::Status& status) {
  return AgreeOnStatus(comm_, status);
}

}  // namespace shardshift::trainer
