// A group of ranks and its collectives: the one interface behind which ranks
// are threads, processes or devices.
// Every call is collective over the group, in the same order on every rank,
// except Send and Recv. Floats are only ever added by the tree over leaves of
// kernels/tree.h, so no sum depends on how many ranks there are.
// A communicator is used by one thread, its rank.
// Errors of every call: InvalidArgument on all ranks when they disagree about
// the call or its sizes; DeadlineExceeded naming the ranks that did not come
// within the timeout; Aborted when another rank failed meanwhile.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_COMM_COMMUNICATOR_H_
#define SHARDSHIFT_TRAINER_COMM_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/tree.h"
#include "trainer/comm/comm_stats.h"

namespace shardshift::trainer {

// A complete node of the tree over the leaves: `node`, and its sums at `data`.
using TreeBuffer = kernels::NodeValue;

// What a tree reduction adds, as one rank sees it.
struct TreeInput {
  int64_t leaves;                     // of the whole tree; equal on all ranks
  std::span<const TreeBuffer> nodes;  // of this rank, any number, also none
  int64_t count;                      // floats a node; equal on all ranks
};

class Communicator {
 public:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  absl::Status Barrier();

  // Copies `data` of rank `root` to all. The sizes are equal.
  absl::Status Broadcast(std::span<std::byte> data, int root);

  // all = the ranks' `mine` one after the other; all.size() is size() times
  // mine.size(). `mine` may be its own place in `all`.
  absl::Status AllGather(std::span<const std::byte> mine,
                         std::span<std::byte> all);

  // The same with sizes that differ: sizes_bytes[r] is that of rank r.
  absl::Status AllGatherV(std::span<const std::byte> mine,
                          std::span<const int64_t> sizes_bytes,
                          std::span<std::byte> all);

  // Elementwise, in place. A NaN of any rank gives NaN; +0 exceeds -0.
  absl::Status AllReduceMax(std::span<float> x);

  // Elementwise, in place, modulo 2^64.
  absl::Status AllReduceSum(std::span<int64_t> x);

  // out[0, end - begin) = elements [begin, end) of the tree sum. The ranks'
  // nodes tile [0, leaves) and hold `count` floats each; ranges may differ from
  // rank to rank and be empty. If the ranges are disjoint, `out` may be
  // data + begin of a node of this rank.
  absl::Status TreeReduceScatter(const TreeInput& input, int64_t begin,
                                 int64_t end, float* out);

  // out[0, count) = the whole tree sum, on every rank. `out` may be the data
  // of a node of this rank.
  absl::Status TreeAllReduce(const TreeInput& input, float* out);

  // TreeAllReduce where rank r holds in `x` the one node of leaves
  // [r * leaves_per_rank, (r + 1) * leaves_per_rank), and gets the sum there.
  // Errors: InvalidArgument if that run of leaves is no single node.
  absl::Status TreeAllReduceInPlace(std::span<float> x,
                                    int64_t leaves_per_rank);

  // Buffered: never waits for the receiver. Messages of one (source, tag)
  // arrive in the order in which they were sent. REQUIRES: tag >= 0.
  absl::Status Send(int destination, int64_t tag,
                    std::span<const std::byte> data);

  // Sends send[r] to rank r and fills receive[r] with what rank r sent here;
  // both have size() spans, empty ones included.
  // Errors: InvalidArgument if a rank sent another size than is expected.
  absl::Status AllToAllV(std::span<const std::span<const std::byte>> send,
                         std::span<const std::span<std::byte>> receive);

  // Waits for the next message of (source, tag).
  // Errors: InvalidArgument if it has another size.
  absl::Status Recv(int source, int64_t tag, std::span<std::byte> data);

  // A communicator for each color, its ranks ordered by (key, rank here).
  // A negative color gives nullptr. `name` is for messages ("tp").
  absl::StatusOr<std::unique_ptr<Communicator>> Split(
      int64_t color, int64_t key, absl::string_view name = "group");

  // Whether the ranks are threads of one process, so that what one points to
  // all may use.
  virtual bool shares_memory() const { return false; }

  // Calls `work` on rank 0 with the `mine` of all ranks; what they point to
  // stays as long as it runs, as no rank returns before. Waits for its end
  // without a timeout. Its status is that of all ranks.
  // Errors: Unimplemented where ranks do not share memory.
  absl::Status OnFirstRank(
      void* mine,
      absl::FunctionRef<absl::Status(std::span<void* const> all)> work);

  // How long this rank waits for the others in one call; Split hands it on.
  // A rank whose peers work on files meanwhile raises it around the call.
  absl::Duration timeout() const { return timeout_; }
  void set_timeout(absl::Duration timeout) { timeout_ = timeout; }

  const CommStats& stats() const { return stats_; }
  void ResetStats() { stats_ = CommStats(); }

 private:
  // The collectives proper. Arguments have been checked as far as one rank
  // can, and a group of one has been dealt with.
  virtual absl::Status DoBarrier() = 0;
  virtual absl::Status DoBroadcast(std::span<std::byte> data, int root) = 0;
  virtual absl::Status DoAllGatherV(std::span<const std::byte> mine,
                                    std::span<const int64_t> sizes_bytes,
                                    std::span<std::byte> all) = 0;
  virtual absl::Status DoAllReduceMax(std::span<float> x) = 0;
  virtual absl::Status DoAllReduceSum(std::span<int64_t> x) = 0;
  virtual absl::Status DoTreeReduceScatter(const TreeInput& input,
                                           int64_t begin, int64_t end,
                                           float* out) = 0;
  virtual absl::Status DoTreeAllReduce(const TreeInput& input, float* out) = 0;
  virtual absl::Status DoSend(int destination, int64_t tag,
                              std::span<const std::byte> data) = 0;
  virtual absl::Status DoRecv(int source, int64_t tag,
                              std::span<std::byte> data) = 0;
  virtual absl::StatusOr<std::unique_ptr<Communicator>> DoSplit(
      int64_t color, int64_t key, absl::string_view name) = 0;
  // Of ranks that share memory.
  virtual absl::Status DoOnFirstRank(
      void* mine, absl::FunctionRef<void(std::span<void* const> all)> work);

  const int rank_;
  const int size_;
  absl::Duration timeout_ = absl::Minutes(10);
  CommStats stats_;
};

// Makes all ranks fail together: OK if every rank passes OK, else on all ranks
// the error of the lowest rank that failed, as "rank 3: ...". Collective.
absl::Status AgreeOnStatus(Communicator& comm, const absl::Status& status);

// Gives all ranks the text of rank 0. Collective.
absl::Status BroadcastText(Communicator& comm, std::string& text);

// Whether an error came out of AgreeOnStatus, and so names its rank already.
bool IsAgreed(const absl::Status& status);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_COMM_COMMUNICATOR_H_
