// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/thread_communicator.h"

#include <algorithm>
#include <cfenv>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "trainer/comm/exact_ops.h"
#include "trainer/comm/thread_group.h"
#include "trainer/comm/tree_sum.h"

namespace shardshift::trainer {
namespace {

void Copy(void* to, const void* from, int64_t size_bytes) {
  if (size_bytes > 0 && to != from) std::memcpy(to, from, size_bytes);
}

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank)
      : Communicator(rank, group->size()), group_(std::move(group)) {}

  bool shares_memory() const override { return true; }

 private:
  absl::Status DoBarrier() override;
  absl::Status DoBroadcast(std::span<std::byte> data, int root) override;
  absl::Status DoAllGatherV(std::span<const std::byte> mine,
                            std::span<const int64_t> sizes_bytes,
                            std::span<std::byte> all) override;
  absl::Status DoAllReduceMax(std::span<float> x) override;
  absl::Status DoAllReduceSum(std::span<int64_t> x) override;
  absl::Status DoTreeReduceScatter(const TreeInput& input, int64_t begin,
                                   int64_t end, float* out) override;
  absl::Status DoTreeAllReduce(const TreeInput& input, float* out) override;
  absl::Status DoSend(int destination, int64_t tag,
                      std::span<const std::byte> data) override;
  absl::Status DoRecv(int source, int64_t tag,
                      std::span<std::byte> data) override;
  absl::StatusOr<std::unique_ptr<Communicator>> DoSplit(
      int64_t color, int64_t key, absl::string_view name) override;
  absl::Status DoOnFirstRank(
      void* mine,
      absl::FunctionRef<void(std::span<void* const> all)> work) override;

  // Meets all peers, runs `work` on their published calls, and meets again so
  // that no buffer is let go too early. `work` fails on all ranks or on none.
  // noexcept: an exception that left it would leave the peers waiting.
  absl::Status Collective(const ThreadCall& call,
                          absl::FunctionRef<absl::Status()> work) noexcept;

  template <typename T, typename Op>
  absl::Status ReduceExactly(CommKind kind, std::span<T> x, Op op);

  // Begin of chunk `r` when `count` elements are dealt to the ranks.
  int64_t ChunkBegin(int64_t count, int r) const { return count * r / size(); }

  // Copies every other rank's own chunk of its `output`.
  template <typename T>
  void CopyChunksOfPeers(int64_t count, T* out) const;

  std::vector<TreeBuffer> AllNodes() const;

  const std::shared_ptr<ThreadGroup> group_;
};

absl::Status ThreadCommunicator::Collective(
    const ThreadCall& call, absl::FunctionRef<absl::Status()> work) noexcept {
  SS_RETURN_IF_ERROR(group_->Begin(rank(), call, timeout()));
  absl::Status status = group_->CheckCallsAgree();
  if (status.ok()) status = Annotate(work(), group_->Describe(call.kind));
  group_->Meet(rank());
  return status;
}

absl::Status ThreadCommunicator::DoBarrier() {
  return Collective({.kind = CommKind::kBarrier},
                    [] { return absl::OkStatus(); });
}

absl::Status ThreadCommunicator::DoBroadcast(std::span<std::byte> data,
                                             int root) {
  const ThreadCall call = {.kind = CommKind::kBroadcast,
                           .size = std::ssize(data),
                           .detail = root,
                           .input = data.data()};
  return Collective(call, [&] {
    Copy(data.data(), group_->call(root).input, std::ssize(data));
    return absl::OkStatus();
  });
}

absl::Status ThreadCommunicator::DoAllGatherV(
    std::span<const std::byte> mine, std::span<const int64_t> sizes_bytes,
    std::span<std::byte> all) {
  const ThreadCall call = {.kind = CommKind::kAllGather,
                           .input = mine.data(),
                           .sizes_bytes = sizes_bytes};
  return Collective(call, [&] {
    std::byte* to = all.data();
    for (int r = 0; r < size(); ++r) {
      Copy(to, group_->call(r).input, sizes_bytes[r]);
      to += sizes_bytes[r];
    }
    return absl::OkStatus();
  });
}

template <typename T>
void ThreadCommunicator::CopyChunksOfPeers(int64_t count, T* out) const {
  for (int r = 0; r < size(); ++r) {
    const int64_t begin = ChunkBegin(count, r);
    const int64_t end = ChunkBegin(count, r + 1);
    const T* from = static_cast<const T*>(group_->call(r).output);
    if (r != rank()) {
      Copy(out + begin, from + begin, (end - begin) * sizeof(T));
    }
  }
}

template <typename T, typename Op>
absl::Status ThreadCommunicator::ReduceExactly(CommKind kind, std::span<T> x,
                                               Op op) {
  const int64_t count = std::ssize(x);
  const ThreadCall call = {.kind = kind, .size = count, .output = x.data()};
  return Collective(call, [&] {
    const int64_t end = ChunkBegin(count, rank() + 1);
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      const T* other = static_cast<const T*>(group_->call(r).output);
      for (int64_t i = ChunkBegin(count, rank()); i < end; ++i) {
        x[i] = op(x[i], other[i]);
      }
    }
    group_->Meet(rank());
    CopyChunksOfPeers(count, x.data());
    return absl::OkStatus();
  });
}

absl::Status ThreadCommunicator::DoAllReduceMax(std::span<float> x) {
  return ReduceExactly(CommKind::kAllReduceMax, x, MaxOf);
}

absl::Status ThreadCommunicator::DoAllReduceSum(std::span<int64_t> x) {
  return ReduceExactly(CommKind::kAllReduceSum, x, WrappingSum);
}

std::vector<TreeBuffer> ThreadCommunicator::AllNodes() const {
  std::vector<TreeBuffer> all;
  for (int r = 0; r < size(); ++r) {
    const auto nodes = group_->call(r).nodes;
    all.insert(all.end(), nodes.begin(), nodes.end());
  }
  return all;
}

absl::Status ThreadCommunicator::DoTreeReduceScatter(const TreeInput& input,
                                                     int64_t begin, int64_t end,
                                                     float* out) {
  const ThreadCall call = {.kind = CommKind::kTreeReduceScatter,
                           .size = input.leaves,
                           .detail = input.count,
                           .nodes = input.nodes};
  return Collective(
      call, [&] { return SumTree(input.leaves, AllNodes(), begin, end, out); });
}

absl::Status ThreadCommunicator::DoTreeAllReduce(const TreeInput& input,
                                                 float* out) {
  const ThreadCall call = {.kind = CommKind::kTreeAllReduce,
                           .size = input.leaves,
                           .detail = input.count,
                           .output = out,
                           .nodes = input.nodes};
  return Collective(call, [&] {
    const int64_t begin = ChunkBegin(input.count, rank());
    const int64_t end = ChunkBegin(input.count, rank() + 1);
    SS_RETURN_IF_ERROR(
        SumTree(input.leaves, AllNodes(), begin, end, out + begin));
    group_->Meet(rank());
    CopyChunksOfPeers(input.count, out);
    return absl::OkStatus();
  });
}

absl::Status ThreadCommunicator::DoSend(int destination, int64_t tag,
                                        std::span<const std::byte> data) {
  group_->Post(rank(), destination, tag, data);
  return absl::OkStatus();
}

absl::Status ThreadCommunicator::DoRecv(int source, int64_t tag,
                                        std::span<std::byte> data) {
  SS_ASSIGN_OR_RETURN(const std::vector<std::byte> message,
                      group_->Take(rank(), source, tag, timeout()));
  if (message.size() != data.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        group_->Describe(CommKind::kRecv), ": the message with tag ", tag,
        " of rank ", group_->world_rank(source), " has ", message.size(),
        " bytes, rank ", group_->world_rank(rank()), " expects ", data.size()));
  }
  Copy(data.data(), message.data(), std::ssize(data));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Communicator>> ThreadCommunicator::DoSplit(
    int64_t color, int64_t key, absl::string_view name) {
  std::shared_ptr<ThreadGroup> part;
  const ThreadCall call = {
      .kind = CommKind::kSplit, .output = &part, .color = color, .key = key};
  int rank_in_part = 0;
  SS_RETURN_IF_ERROR(Collective(call, [&] {
    std::vector<int> ranks;  // of this group, in the part's order
    for (int r = 0; r < size(); ++r) {
      if (group_->call(r).color == color) ranks.push_back(r);
    }
    std::ranges::stable_sort(ranks, {},
                             [&](int r) { return group_->call(r).key; });
    rank_in_part =
        static_cast<int>(std::ranges::find(ranks, rank()) - ranks.begin());
    if (color >= 0 && rank_in_part == 0) {
      std::vector<int> members(ranks.size());
      std::ranges::transform(ranks, members.begin(),
                             [&](int r) { return group_->world_rank(r); });
      part = std::make_shared<ThreadGroup>(&group_->world(), std::string(name),
                                           std::move(members));
    }
    group_->Meet(rank());
    if (color >= 0 && rank_in_part > 0) {
      part = *static_cast<std::shared_ptr<ThreadGroup>*>(
          group_->call(ranks.front()).output);
    }
    return absl::OkStatus();
  }));
  if (part == nullptr) return nullptr;
  return std::make_unique<ThreadCommunicator>(std::move(part), rank_in_part);
}

absl::Status ThreadCommunicator::DoOnFirstRank(
    void* mine, absl::FunctionRef<void(std::span<void* const> all)> work) {
  const ThreadCall call = {.kind = CommKind::kOnFirstRank, .output = mine};
  return Collective(call, [&] {
    if (rank() > 0) return absl::OkStatus();
    std::vector<void*> all(size());
    for (int r = 0; r < size(); ++r) all[r] = group_->call(r).output;
    work(all);
    return absl::OkStatus();
  });
}

}  // namespace

absl::Status CatchExceptions(absl::FunctionRef<absl::Status()> body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        "out of memory: use more ranks, smaller micro-batches or a smaller "
        "model");
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat("exception: ", e.what()));
  } catch (...) {
    return absl::InternalError("exception of an unknown type");
  }
}

absl::Status RunRanks(int world_size, const ThreadWorldOptions& options,
                      const std::function<absl::Status(Communicator&)>& body) {
  if (world_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a world of ", world_size, " ranks, expected 1 or more"));
  }
  ThreadWorld world(world_size);
  std::vector<int> members(world_size);
  std::iota(members.begin(), members.end(), 0);
  const auto group =
      std::make_shared<ThreadGroup>(&world, "world", std::move(members));
  const auto run_rank = [&](int rank) {
    std::fesetenv(FE_DFL_ENV);  // the same rounding and denormals on all ranks
    ThreadCommunicator comm(group, rank);
    comm.set_timeout(options.timeout);
    const absl::Status status = CatchExceptions([&] { return body(comm); });
    if (!status.ok()) world.Fail(rank, status);
  };
  std::vector<std::jthread> threads;
  threads.reserve(world_size);
  for (int rank = 0; rank < world_size; ++rank) {
    try {
      threads.emplace_back(run_rank, rank);
    } catch (const std::system_error& e) {
      world.Fail(rank, absl::ResourceExhaustedError(absl::StrCat(
                           "cannot start its thread: ", e.what())));
      break;
    }
  }
  threads.clear();
  return world.failure();
}

}  // namespace shardshift::trainer
