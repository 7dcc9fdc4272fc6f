// The memory that ranks of one process meet in: what a world and its groups
// share below ThreadCommunicator.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_COMM_THREAD_GROUP_H_
#define SHARDSHIFT_TRAINER_COMM_THREAD_GROUP_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "trainer/comm/comm_call.h"
#include "trainer/comm/comm_stats.h"
#include "trainer/comm/communicator.h"

namespace shardshift::trainer {

// All ranks of a run: where each sleeps, and the first failure. Thread-safe.
class ThreadWorld {
 public:
  explicit ThreadWorld(int size) : bells_(size) {}

  int size() const { return static_cast<int>(bells_.size()); }

  // Records the failure of `rank` unless there is one already, and wakes all.
  void Fail(int rank, const absl::Status& status);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // The first failure as "rank 2: ...", or OK.
  absl::Status failure() const;
  // What ranks get that were waiting when another one failed.
  absl::Status AbortedByFailure() const;

  // Sleeps until `done`, which is looked at again whenever `rank` is woken, or
  // for `timeout`. Returns the last done().
  bool Wait(int rank, absl::Duration timeout, absl::FunctionRef<bool()> done);
  // To be called after a change that the `done` of `rank` may wait for.
  void Wake(int rank);

 private:
  struct alignas(64) Bell {
    std::mutex mutex;
    std::condition_variable rung;
  };

  std::vector<Bell> bells_;
  std::atomic<bool> failed_ = false;
  mutable std::mutex failure_mutex_;
  absl::Status failure_;
};

// What a rank shows to its peers during one collective.
struct ThreadCall {
  CommKind kind;
  int64_t size = 0;    // bytes, elements or leaves: equal on all ranks
  int64_t detail = 0;  // root or floats a node: equal on all ranks
  const void* input = nullptr;
  void* output = nullptr;
  std::span<const int64_t> sizes_bytes = {};  // AllGather
  std::span<const TreeBuffer> nodes = {};     // tree reductions
  int64_t color = 0;                          // Split
  int64_t key = 0;

  CommCall agreed() const { return {kind, size, detail, sizes_bytes}; }
};

// The members of one communicator. A collective is Begin, any work on the
// peers' buffers with Meet between its phases, and a last Meet. From Begin's
// success to the last Meet every member works for a bounded time only and
// comes, so those meetings are neither interrupted nor timed: no rank leaves
// while a peer may still read its buffers.
class ThreadGroup {
 public:
  ThreadGroup(ThreadWorld* world, std::string name, std::vector<int> members);

  ThreadWorld& world() { return *world_; }
  int size() const { return static_cast<int>(members_.size()); }
  int world_rank(int rank) const { return members_[rank]; }
  const ThreadCall& call(int rank) const { return slots_[rank].call; }

  // Publishes `call` and waits for those of all peers.
  // Errors: DeadlineExceeded, which also fails the world; Aborted.
  absl::Status Begin(int rank, const ThreadCall& call, absl::Duration timeout);

  void Meet(int rank);

  // After Begin. Errors: InvalidArgument, the same on all ranks, if the calls
  // differ in kind or sizes.
  absl::Status CheckCallsAgree() const;

  // Adds a message to the mailbox of `destination`.
  void Post(int source, int destination, int64_t tag,
            std::span<const std::byte> data);

  // Takes the oldest message of (source, tag) from the mailbox of `rank`.
  absl::StatusOr<std::vector<std::byte>> Take(int rank, int source, int64_t tag,
                                              absl::Duration timeout);

  // `AllGather in group "tp" of ranks 0, 1`.
  std::string Describe(CommKind kind) const;

 private:
  using MessageKey = std::pair<int, int64_t>;  // source, tag
  using Message = std::vector<std::byte>;

  struct alignas(64) Slot {
    ThreadCall call{CommKind::kBarrier};
    std::atomic<int64_t> meetings = 0;  // that this rank has come to
    std::mutex mail_mutex;
    std::map<MessageKey, std::deque<Message>> mail;
  };

  // Comes to the next meeting and returns the value of arrivals_ at which all
  // have come to it.
  int64_t Arrive(int rank);
  // Takes the arrival back, so that the meeting can never be complete; false
  // if it is complete already.
  bool Withdraw(int64_t complete);
  std::optional<Message> TryTake(int rank, MessageKey key);
  std::string MissingFrom(int64_t meeting) const;
  // Fails the world with the DeadlineExceeded that it returns.
  absl::Status TimedOut(int rank, CommKind kind, absl::Duration timeout,
                        absl::string_view awaited);

  ThreadWorld* const world_;
  const std::string name_;
  const std::vector<int> members_;  // world ranks
  std::vector<Slot> slots_;
  std::atomic<int64_t> arrivals_ = 0;  // at all meetings, of all ranks
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_COMM_THREAD_GROUP_H_
