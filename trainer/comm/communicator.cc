// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "trainer/comm/tree_sum.h"

namespace shardshift::trainer {
namespace {

constexpr char kAgreedPayload[] = "shardshift/agreed";
constexpr int64_t kAllToAllTag = -1;  // callers' are not negative

int64_t TreeBytes(const TreeInput& input) {
  return static_cast<int64_t>(input.nodes.size()) * input.count * kFloatBytes;
}

absl::Status CheckPeer(int peer, int size) {
  if (0 <= peer && peer < size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", peer, " in a group of ", size, " ranks"));
}

absl::Status CheckGather(int64_t mine_bytes, int rank,
                         std::span<const int64_t> sizes_bytes,
                         int64_t all_bytes) {
  const int64_t total =
      std::accumulate(sizes_bytes.begin(), sizes_bytes.end(), int64_t{0});
  if (mine_bytes == sizes_bytes[rank] && all_bytes == total) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("AllGather: rank ", rank, " gives ", mine_bytes,
                   " bytes, expected ", sizes_bytes[rank], ", for a result of ",
                   all_bytes, ", expected ", total));
}

}  // namespace

absl::Status Communicator::Barrier() {
  stats_.Add(CommKind::kBarrier, 0);
  return size_ == 1 ? absl::OkStatus() : DoBarrier();
}

absl::Status Communicator::Broadcast(std::span<std::byte> data, int root) {
  SS_RETURN_IF_ERROR(CheckPeer(root, size_));
  stats_.Add(CommKind::kBroadcast,
             rank_ == root ? static_cast<int64_t>(data.size()) : 0);
  return size_ == 1 ? absl::OkStatus() : DoBroadcast(data, root);
}

absl::Status Communicator::AllGather(std::span<const std::byte> mine,
                                     std::span<std::byte> all) {
  const std::vector<int64_t> sizes_bytes(size_, std::ssize(mine));
  return AllGatherV(mine, sizes_bytes, all);
}

absl::Status Communicator::AllGatherV(std::span<const std::byte> mine,
                                      std::span<const int64_t> sizes_bytes,
                                      std::span<std::byte> all) {
  if (std::ssize(sizes_bytes) != size_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "AllGather: ", sizes_bytes.size(), " sizes for ", size_, " ranks"));
  }
  SS_RETURN_IF_ERROR(
      CheckGather(std::ssize(mine), rank_, sizes_bytes, std::ssize(all)));
  stats_.Add(CommKind::kAllGather, std::ssize(mine));
  if (size_ > 1) return DoAllGatherV(mine, sizes_bytes, all);
  if (!mine.empty()) std::memmove(all.data(), mine.data(), mine.size());
  return absl::OkStatus();
}

absl::Status Communicator::AllReduceMax(std::span<float> x) {
  stats_.Add(CommKind::kAllReduceMax, std::ssize(x) * kFloatBytes);
  return size_ == 1 ? absl::OkStatus() : DoAllReduceMax(x);
}

absl::Status Communicator::AllReduceSum(std::span<int64_t> x) {
  stats_.Add(CommKind::kAllReduceSum, static_cast<int64_t>(x.size_bytes()));
  return size_ == 1 ? absl::OkStatus() : DoAllReduceSum(x);
}

absl::Status Communicator::TreeReduceScatter(const TreeInput& input,
                                             int64_t begin, int64_t end,
                                             float* out) {
  if (begin < 0 || begin > end || end > input.count) {
    return absl::InvalidArgumentError(absl::StrCat("TreeReduceScatter: range [",
                                                   begin, ",", end, ") of ",
                                                   input.count, " elements"));
  }
  stats_.Add(CommKind::kTreeReduceScatter, TreeBytes(input));
  if (size_ > 1) return DoTreeReduceScatter(input, begin, end, out);
  return SumTree(input.leaves, {input.nodes.begin(), input.nodes.end()}, begin,
                 end, out);
}

absl::Status Communicator::TreeAllReduce(const TreeInput& input, float* out) {
  stats_.Add(CommKind::kTreeAllReduce, TreeBytes(input));
  if (size_ > 1) return DoTreeAllReduce(input, out);
  return SumTree(input.leaves, {input.nodes.begin(), input.nodes.end()}, 0,
                 input.count, out);
}

absl::Status Communicator::TreeAllReduceInPlace(std::span<float> x,
                                                int64_t leaves_per_rank) {
  const TreeBuffer mine = {
      {rank_ * leaves_per_rank, (rank_ + 1) * leaves_per_rank}, x.data()};
  return TreeAllReduce({.leaves = size_ * leaves_per_rank,
                        .nodes = {&mine, 1},
                        .count = std::ssize(x)},
                       x.data());
}

absl::Status Communicator::Send(int destination, int64_t tag,
                                std::span<const std::byte> data) {
  SS_RETURN_IF_ERROR(CheckPeer(destination, size_));
  stats_.Add(CommKind::kSend, std::ssize(data));
  return DoSend(destination, tag, data);
}

absl::Status Communicator::Recv(int source, int64_t tag,
                                std::span<std::byte> data) {
  SS_RETURN_IF_ERROR(CheckPeer(source, size_));
  stats_.Add(CommKind::kRecv, std::ssize(data));
  return DoRecv(source, tag, data);
}

absl::Status Communicator::AllToAllV(
    std::span<const std::span<const std::byte>> send,
    std::span<const std::span<std::byte>> receive) {
  if (std::ssize(send) != size_ || std::ssize(receive) != size_ ||
      send[rank_].size() != receive[rank_].size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "AllToAll: ", send.size(), " parts to send and ", receive.size(),
        " to receive among ", size_, " ranks, or a rank's own differ"));
  }
  int64_t bytes = 0;
  for (const auto& part : send) bytes += std::ssize(part);
  stats_.Add(CommKind::kAllToAll, bytes);
  if (!send[rank_].empty()) {
    std::memmove(receive[rank_].data(), send[rank_].data(), send[rank_].size());
  }
  for (int i = 1; i < size_; ++i) {
    const int to = (rank_ + i) % size_;
    SS_RETURN_IF_ERROR(DoSend(to, kAllToAllTag, send[to]));
  }
  for (int i = 1; i < size_; ++i) {
    const int from = (rank_ + size_ - i) % size_;
    SS_RETURN_IF_ERROR(DoRecv(from, kAllToAllTag, receive[from]));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Split(
    int64_t color, int64_t key, absl::string_view name) {
  stats_.Add(CommKind::kSplit, 0);
  SS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> part,
                      DoSplit(color, key, name));
  if (part != nullptr) part->set_timeout(timeout_);
  return part;
}

absl::Status Communicator::OnFirstRank(
    void* mine,
    absl::FunctionRef<absl::Status(std::span<void* const> all)> work) {
  stats_.Add(CommKind::kOnFirstRank, 0);
  absl::Status status;
  const auto run = [&](std::span<void* const> all) { status = work(all); };
  if (size_ > 1) {
    SS_RETURN_IF_ERROR(DoOnFirstRank(mine, run));
  } else {
    run({&mine, 1});
  }
  return AgreeOnStatus(*this, status);
}

absl::Status Communicator::DoOnFirstRank(
    void* /*mine*/, absl::FunctionRef<void(std::span<void* const>)> /*work*/) {
  return absl::UnimplementedError("these ranks do not share memory");
}

absl::Status AgreeOnStatus(Communicator& comm, const absl::Status& status) {
  struct Outcome {
    int64_t code;
    int64_t message_bytes;
  };
  const Outcome mine = {static_cast<int64_t>(status.code()),
                        static_cast<int64_t>(status.message().size())};
  std::vector<Outcome> outcomes(comm.size());
  SS_RETURN_IF_ERROR(
      comm.AllGather(std::as_bytes(std::span(&mine, 1)),
                     std::as_writable_bytes(std::span(outcomes))));
  const auto failed = std::ranges::find_if(
      outcomes, [](const Outcome& outcome) { return outcome.code != 0; });
  if (failed == outcomes.end()) return absl::OkStatus();

  const int root = static_cast<int>(failed - outcomes.begin());
  std::string message(failed->message_bytes, '\0');
  if (comm.rank() == root) message = std::string(status.message());
  SS_RETURN_IF_ERROR(
      comm.Broadcast(std::as_writable_bytes(std::span(message)), root));
  absl::Status agreed(static_cast<absl::StatusCode>(failed->code),
                      absl::StrCat("rank ", root, ": ", message));
  agreed.SetPayload(kAgreedPayload, absl::Cord());
  return agreed;
}

absl::Status BroadcastText(Communicator& comm, std::string& text) {
  auto size = static_cast<int64_t>(text.size());
  SS_RETURN_IF_ERROR(
      comm.Broadcast(std::as_writable_bytes(std::span(&size, 1)), 0));
  text.resize(size);
  return comm.Broadcast(std::as_writable_bytes(std::span(text)), 0);
}

bool IsAgreed(const absl::Status& status) {
  return status.GetPayload(kAgreedPayload).has_value();
}

}  // namespace shardshift::trainer
