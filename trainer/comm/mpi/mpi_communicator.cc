// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/mpi/mpi_communicator.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "trainer/comm/exact_ops.h"
#include "trainer/comm/tree_sum.h"

namespace shardshift::trainer {
namespace {

// What a long sum receives of all ranks' nodes at a time: it stays in a cache.
constexpr int64_t kFloatsInFlight = int64_t{1} << 20;
constexpr int64_t kLeastPiece = 4096;

void Copy(std::byte* to, std::span<const std::byte> from) {
  if (!from.empty() && to != from.data()) {
    std::memmove(to, from.data(), from.size());
  }
}

std::vector<std::byte> BytesOf(std::span<const std::byte> data) {
  return {data.begin(), data.end()};
}

bool IsShort(int64_t bytes) { return bytes <= MpiMail::kShortBytes; }

int64_t NodeBytes(int64_t num_nodes, int64_t count) {
  return num_nodes * count * kFloatBytes;
}

}  // namespace

MpiCommunicator::MpiCommunicator(MpiWorld& world, MpiGroup group, int rank)
    : Communicator(rank, static_cast<int>(group.members.size())),
      world_(world),
      group_(std::move(group)) {}

absl::Status MpiCommunicator::DoBarrier() {
  return NewCall().Begin({.call = {.kind = CommKind::kBarrier}});
}

absl::Status MpiCommunicator::DoBroadcast(std::span<std::byte> data, int root) {
  CallNotice mine = {.call = {.kind = CommKind::kBroadcast,
                              .size = std::ssize(data),
                              .detail = root}};
  const bool is_short = IsShort(std::ssize(data));
  if (is_short && rank() == root) mine.data = BytesOf(data);
  MpiCall call = NewCall();
  SS_RETURN_IF_ERROR(call.Begin(std::move(mine)));
  if (is_short) {
    Copy(data.data(), call.of(root).data);
    return absl::OkStatus();
  }
  if (rank() != root) {
    call.Receive(root, data);
  } else {
    for (int i = 1; i < size(); ++i) call.Send((root + i) % size(), data);
  }
  return call.Finish();
}

absl::Status MpiCommunicator::DoAllGatherV(std::span<const std::byte> mine,
                                           std::span<const int64_t> sizes_bytes,
                                           std::span<std::byte> all) {
  CallNotice notice = {
      .call = {.kind = CommKind::kAllGather, .sizes_bytes = sizes_bytes}};
  if (IsShort(std::ssize(mine))) notice.data = BytesOf(mine);
  MpiCall call = NewCall();
  SS_RETURN_IF_ERROR(call.Begin(std::move(notice)));
  std::byte* to = all.data();
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) {
      Copy(to, mine);
    } else if (IsShort(sizes_bytes[r])) {
      Copy(to, call.of(r).data);
    } else {
      call.Receive(r, {to, static_cast<size_t>(sizes_bytes[r])});
    }
    to += sizes_bytes[r];
  }
  if (!IsShort(std::ssize(mine))) {
    for (int i = 1; i < size(); ++i) call.Send((rank() + i) % size(), mine);
  }
  return call.Finish();
}

template <typename T>
absl::Status MpiCommunicator::GatherChunks(MpiCall& call, std::span<T> x) {
  const auto chunk = [&](int r) {
    const int64_t begin = ChunkBegin(std::ssize(x), r);
    return x.subspan(begin, ChunkBegin(std::ssize(x), r + 1) - begin);
  };
  for (int i = 1; i < size(); ++i) {
    const int r = (rank() + i) % size();
    call.Receive(r, std::as_writable_bytes(chunk(r)));
    call.Send(r, std::as_bytes(chunk(rank())));
  }
  return call.Finish();
}

template <typename T, typename Op>
absl::Status MpiCommunicator::ReduceExactly(CommKind kind, std::span<T> x,
                                            Op op) {
  const int64_t count = std::ssize(x);
  const bool is_short = IsShort(std::ssize(std::as_bytes(x)));
  CallNotice mine = {.call = {.kind = kind, .size = count}};
  if (is_short) mine.data = BytesOf(std::as_bytes(x));
  MpiCall call = NewCall();
  SS_RETURN_IF_ERROR(call.Begin(std::move(mine)));
  const int64_t begin = is_short ? 0 : ChunkBegin(count, rank());
  const int64_t length =
      (is_short ? count : ChunkBegin(count, rank() + 1)) - begin;
  std::vector<T> others(length * size());
  for (int r = 0; r < size(); ++r) {
    const auto other = std::span(others).subspan(r * length, length);
    if (r == rank()) continue;
    if (is_short) {
      Copy(std::as_writable_bytes(other).data(), call.of(r).data);
      continue;
    }
    const int64_t theirs = ChunkBegin(count, r);
    call.Receive(r, std::as_writable_bytes(other));
    call.Send(
        r, std::as_bytes(x.subspan(theirs, ChunkBegin(count, r + 1) - theirs)));
  }
  SS_RETURN_IF_ERROR(call.Finish());
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    for (int64_t i = 0; i < length; ++i) {
      x[begin + i] = op(x[begin + i], others[r * length + i]);
    }
  }
  return is_short ? absl::OkStatus() : GatherChunks(call, x);
}

absl::Status MpiCommunicator::DoAllReduceMax(std::span<float> x) {
  return ReduceExactly(CommKind::kAllReduceMax, x, MaxOf);
}

absl::Status MpiCommunicator::DoAllReduceSum(std::span<int64_t> x) {
  return ReduceExactly(CommKind::kAllReduceSum, x, WrappingSum);
}

absl::Status MpiCommunicator::BeginTree(MpiCall& call, CommKind kind,
                                        const TreeInput& input, int64_t begin,
                                        int64_t end) {
  CallNotice mine = {
      .call = {.kind = kind, .size = input.leaves, .detail = input.count},
      .begin = begin,
      .end = end};
  const bool is_short =
      IsShort(NodeBytes(std::ssize(input.nodes), input.count));
  for (const auto& [node, data] : input.nodes) {
    mine.nodes.push_back(node);
    if (!is_short || input.count == 0) continue;
    const auto bytes = std::as_bytes(std::span(data, input.count));
    mine.data.insert(mine.data.end(), bytes.begin(), bytes.end());
  }
  SS_RETURN_IF_ERROR(call.Begin(std::move(mine)));
  // Before anything long is sent: on all ranks or on none.
  std::vector<TreeBuffer> nodes;
  for (int r = 0; r < size(); ++r) {
    for (const kernels::TreeNode& node : call.of(r).nodes) {
      nodes.push_back({node, nullptr});
    }
  }
  return SumTree(input.leaves, std::move(nodes), 0, 0, nullptr);
}

absl::Status MpiCommunicator::SumNotices(const MpiCall& call,
                                         const TreeInput& input, int64_t begin,
                                         int64_t end, float* out) const {
  std::vector<TreeBuffer> nodes(input.nodes.begin(), input.nodes.end());
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const auto* data = reinterpret_cast<const float*>(call.of(r).data.data());
    for (const kernels::TreeNode& node : call.of(r).nodes) {
      nodes.push_back({node, data});
      data += input.count;
    }
  }
  return SumTree(input.leaves, std::move(nodes), begin, end, out);
}

absl::Status MpiCommunicator::SumOwnRange(MpiCall& call, const TreeInput& input,
                                          float* out) {
  int64_t num_nodes = 0;
  int64_t longest = 0;
  for (int r = 0; r < size(); ++r) {
    num_nodes += std::ssize(call.of(r).nodes);
    longest = std::max(longest, call.of(r).end - call.of(r).begin);
  }
  const int64_t most = std::max(kLeastPiece, kFloatsInFlight / num_nodes);
  for (int64_t at = 0; at < longest; at += most) {
    // The piece of a rank's range whose turn it is.
    const auto piece = [&](int r) {
      const CallNotice& notice = call.of(r);
      const int64_t begin = std::min(notice.begin + at, notice.end);
      return std::pair(begin, std::min(begin + most, notice.end) - begin);
    };
    const auto [begin, length] = piece(rank());
    std::vector<TreeBuffer> nodes;
    for (const auto& [node, data] : input.nodes) {
      nodes.push_back({node, data + begin});
    }
    nodes_of_peers_.resize(
        std::max<size_t>(nodes_of_peers_.size(), num_nodes * length));
    float* room = nodes_of_peers_.data();
    for (int i = 1; i < size(); ++i) {
      const int r = (rank() + i) % size();
      for (const kernels::TreeNode& node : call.of(r).nodes) {
        call.Receive(r, std::as_writable_bytes(std::span(room, length)));
        nodes.push_back({node, room});
        room += length;
      }
      const auto [theirs, their_length] = piece(r);
      for (const auto& [node, data] : input.nodes) {
        call.Send(r, std::as_bytes(std::span(data + theirs, their_length)));
      }
    }
    SS_RETURN_IF_ERROR(call.Finish());
    SS_RETURN_IF_ERROR(
        SumTree(input.leaves, std::move(nodes), 0, length, out + at));
  }
  return absl::OkStatus();
}

absl::Status MpiCommunicator::DoTreeReduceScatter(const TreeInput& input,
                                                  int64_t begin, int64_t end,
                                                  float* out) {
  MpiCall call = NewCall();
  SS_RETURN_IF_ERROR(
      BeginTree(call, CommKind::kTreeReduceScatter, input, begin, end));
  for (int r = 0; r < size(); ++r) {
    if (!IsShort(NodeBytes(std::ssize(call.of(r).nodes), input.count))) {
      return SumOwnRange(call, input, out);
    }
  }
  return SumNotices(call, input, begin, end, out);
}

absl::Status MpiCommunicator::DoTreeAllReduce(const TreeInput& input,
                                              float* out) {
  MpiCall call = NewCall();
  const int64_t begin = ChunkBegin(input.count, rank());
  SS_RETURN_IF_ERROR(BeginTree(call, CommKind::kTreeAllReduce, input, begin,
                               ChunkBegin(input.count, rank() + 1)));
  for (int r = 0; r < size(); ++r) {
    if (IsShort(NodeBytes(std::ssize(call.of(r).nodes), input.count))) continue;
    SS_RETURN_IF_ERROR(SumOwnRange(call, input, out + begin));
    return GatherChunks(call, std::span(out, input.count));
  }
  return SumNotices(call, input, 0, input.count, out);
}

absl::Status MpiCommunicator::DoSend(int destination, int64_t tag,
                                     std::span<const std::byte> data) {
  world_.mail().PostMessage(group_.members[destination], group_.context, tag,
                            data);
  return absl::OkStatus();
}

std::string MpiCommunicator::DescribeRecv() const {
  return DescribeCall(CommKind::kRecv, group_.name, group_.members);
}

absl::Status MpiCommunicator::Late(absl::string_view awaited) {
  const absl::Status error = world_.mail().error();
  absl::Status status =
      !error.ok() ? error
                  : absl::DeadlineExceededError(absl::StrCat(
                        DescribeRecv(), ": waited ",
                        absl::FormatDuration(timeout()), " for ", awaited));
  world_.Fail(status);
  return status;
}

absl::StatusOr<Letter> MpiCommunicator::TakeLetter(int world_source,
                                                   int64_t tag) {
  std::optional<Letter> letter;
  const bool in_time = world_.mail().Wait(timeout(), [&] {
    letter = world_.mail().TryTake(
        {LetterKind::kMessage, group_.context, world_source, tag});
    return letter.has_value() || world_.failed();
  });
  if (letter.has_value()) return *std::move(letter);
  if (in_time) return world_.AbortedByFailure();
  return Late(
      absl::StrCat("a message with tag ", tag, " of rank ", world_source));
}

absl::Status MpiCommunicator::TakeMessage(int world_source,
                                          const Letter& letter,
                                          std::span<std::byte> data) {
  if (letter.head.bulk_bytes == 0) {
    Copy(data.data(), letter.body());
    return absl::OkStatus();
  }
  MpiMail& mail = world_.mail();
  Transfer transfer =
      mail.StartReceive(world_source, letter.head.bulk_tag, data);
  // Not broken off by failures: what was sent comes.
  if (mail.Wait(timeout(), [&] { return mail.HasEnded(transfer); })) {
    return absl::OkStatus();
  }
  return Late(absl::StrCat("data of rank ", world_source));
}

absl::Status MpiCommunicator::DoRecv(int source, int64_t tag,
                                     std::span<std::byte> data) {
  const int world_source = group_.members[source];
  SS_ASSIGN_OR_RETURN(const Letter letter, TakeLetter(world_source, tag));
  const int64_t bytes =
      std::max(letter.head.bulk_bytes, std::ssize(letter.body()));
  if (bytes == std::ssize(data)) {
    return TakeMessage(world_source, letter, data);
  }
  std::vector<std::byte> unwanted(bytes);
  SS_RETURN_IF_ERROR(TakeMessage(world_source, letter, unwanted));
  return absl::InvalidArgumentError(
      absl::StrCat(DescribeRecv(), ": the message with tag ", tag, " of rank ",
                   world_source, " has ", bytes, " bytes, rank ",
                   group_.members[rank()], " expects ", data.size()));
}

absl::StatusOr<std::unique_ptr<Communicator>> MpiCommunicator::DoSplit(
    int64_t color, int64_t key, absl::string_view name) {
  MpiCall call = NewCall();
  SS_RETURN_IF_ERROR(call.Begin({.call = {.kind = CommKind::kSplit},
                                 .color = color,
                                 .key = key,
                                 .context = world_.NewContext()}));
  if (color < 0) return nullptr;
  std::vector<int> ranks;  // of this group, in the part's order
  for (int r = 0; r < size(); ++r) {
    if (call.of(r).color == color) ranks.push_back(r);
  }
  std::ranges::stable_sort(ranks, {}, [&](int r) { return call.of(r).key; });
  MpiGroup part = {.context = call.of(ranks.front()).context,
                   .name = std::string(name),
                   .members = {}};
  for (const int r : ranks) part.members.push_back(group_.members[r]);
  const auto mine = std::ranges::find(ranks, rank()) - ranks.begin();
  return std::make_unique<MpiCommunicator>(world_, std::move(part),
                                           static_cast<int>(mine));
}

}  // namespace shardshift::trainer
