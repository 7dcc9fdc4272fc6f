// One collective call among processes.
// It begins with a letter from each member to each other: what is called with
// which sizes, and data if they are short. So all know that all are there and
// agree, and a short call is over in one step. Cost: size() - 1 letters a rank
// of some 150 bytes, about a microsecond each.
// What is long follows from memory to memory. A member that gives up before
// then, since another rank failed or is late, withdraws by a letter. The others
// finish what they have under way among them and withdraw as well, so nobody
// reads or writes the memory of a call that has returned.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_COMM_MPI_MPI_CALL_H_
#define SHARDSHIFT_TRAINER_COMM_MPI_MPI_CALL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/tree.h"
#include "trainer/comm/comm_call.h"
#include "trainer/comm/mpi/mpi_mail.h"
#include "trainer/comm/mpi/mpi_world.h"

namespace shardshift::trainer {

// The members of one communicator.
struct MpiGroup {
  uint64_t context = 0;
  std::string name;
  std::vector<int> members;  // world ranks
};

// What a rank tells the others at the beginning.
struct CallNotice {
  CommCall call = {};
  int64_t begin = 0;  // TreeReduceScatter: what the rank wants
  int64_t end = 0;
  std::vector<kernels::TreeNode> nodes = {};  // that it holds
  std::vector<std::byte> data = {};           // if they are short
  int64_t color = 0;                          // Split
  int64_t key = 0;
  uint64_t context = 0;  // of the part, if the rank is its first
  std::vector<int64_t> sizes_bytes = {};  // received: what call.sizes_bytes is
  int32_t bulk_tag = 0;                   // received
};

class MpiCall {
 public:
  // All outlive this. `number` counts the calls of the group.
  MpiCall(MpiWorld& world, const MpiGroup& group, int rank, int64_t number,
          absl::Duration timeout);
  MpiCall(const MpiCall&) = delete;
  MpiCall& operator=(const MpiCall&) = delete;

  // Tells all others of this call and waits until they have told of theirs.
  // Errors: InvalidArgument, on all members, if the calls differ;
  // DeadlineExceeded, which also fails the world; Aborted.
  absl::Status Begin(CallNotice mine);

  // After Begin, by the rank in the group.
  const CallNotice& of(int rank) const { return notices_[rank]; }

  // Starts to send to, or to receive from, a member that does the opposite in
  // the same order. The data stays until Finish. Does nothing if it is empty.
  void Send(int rank, std::span<const std::byte> data);
  void Receive(int rank, std::span<std::byte> data);

  // Waits for the end of all that was started. Errors: Aborted;
  // DeadlineExceeded if a member hangs in the middle of the call.
  absl::Status Finish();

 private:
  struct Part {
    int rank;  // in the group
    bool is_receive;
    Transfer transfer;
    bool is_given_up = false;
  };

  int64_t size() const { return std::ssize(group_.members); }
  std::string Describe() const;
  absl::Status Fail(absl::Status status);
  void Withdraw();
  // Held.
  bool TakeNotices();
  bool HasWithdrawn(int rank) const;
  bool HasEnded(Part& part);

  MpiWorld& world_;
  const MpiGroup& group_;
  const int rank_;
  const int64_t number_;
  const absl::Duration timeout_;
  CommKind kind_ = CommKind::kBarrier;
  std::vector<CallNotice> notices_;
  std::vector<bool> has_told_;
  std::vector<int> send_tags_;
  std::vector<Part> parts_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_COMM_MPI_MPI_CALL_H_
