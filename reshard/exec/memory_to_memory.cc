// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/memory_to_memory.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/box_copy.h"
#include "ckpt/core/status_macros.h"
#include "reshard/exec/move_plan.h"
#include "reshard/layout/content.h"

namespace shardshift::reshard {
namespace {

constexpr auto kRoles = std::ssize(kOptimizerRoles);
constexpr int64_t kItemBytes = sizeof(float);

int64_t BytesOf(const Move& move) {
  return ckpt::NumElements(move.box) * kItemBytes * kRoles;
}

bool IsLocal(const Move& move) { return move.from.rank == move.to.rank; }

// The image of a move under one role, in the bytes that are sent for it.
template <typename Byte>
std::span<Byte> OfRole(std::span<Byte> bytes, int64_t role) {
  const size_t size = bytes.size() / kRoles;
  return bytes.subspan(role * size, size);
}

// The dense image of the move's box out of a piece in memory.
void Pack(const Move& move, const HeldPiece& held, const float* memory,
          std::span<std::byte> image) {
  ckpt::CopyBox(reinterpret_cast<const std::byte*>(memory), held.piece.box,
                image.data(), move.box, move.box, kItemBytes);
}

// The moves of a round that this rank sends, or receives, by the other rank,
// with the memory of their messages.
class Messages {
 public:
  void Add(int64_t peer, const Move& move) {
    moves_[peer].push_back(&move);
    num_bytes_ += BytesOf(move);
  }

  // Calls visit(peer, bytes of the message, its moves) by rank.
  template <typename Visitor>
  void ForEach(Visitor&& visit) {
    staging_.resize(num_bytes_);
    std::span<std::byte> rest(staging_);
    for (const auto& [peer, moves] : moves_) {
      int64_t size = 0;
      for (const Move* move : moves) size += BytesOf(*move);
      visit(peer, rest.first(size), moves);
      rest = rest.subspan(size);
    }
  }

  // Calls visit(move, its bytes) in the order of the messages.
  template <typename Visitor>
  void ForEachMove(Visitor&& visit) {
    ForEach([&](int64_t /*peer*/, std::span<std::byte> bytes,
                const std::vector<const Move*>& moves) {
      for (const Move* move : moves) {
        visit(*move, bytes.first(BytesOf(*move)));
        bytes = bytes.subspan(BytesOf(*move));
      }
    });
  }

 private:
  std::map<int64_t, std::vector<const Move*>> moves_;
  int64_t num_bytes_ = 0;
  std::vector<std::byte> staging_;
};

using Receive =
    absl::FunctionRef<void(const Move&, std::span<const std::byte>)>;

absl::Status RunRound(std::span<const Move> moves, Transport& transport,
                      SourceMemory source, Receive receive) {
  Messages to_send;
  Messages to_receive;
  for (const Move& move : moves) {
    if (IsLocal(move)) continue;
    if (move.from.rank == transport.rank()) to_send.Add(move.to.rank, move);
    if (move.to.rank == transport.rank()) to_receive.Add(move.from.rank, move);
  }
  to_send.ForEachMove([&](const Move& move, std::span<std::byte> bytes) {
    for (int64_t role = 0; role < kRoles; ++role) {
      Pack(move, move.from, source(move.from.buffer, move.from.piece, role),
           OfRole(bytes, role));
    }
  });
  std::vector<Outgoing> outgoing;
  to_send.ForEach([&](int64_t peer, std::span<const std::byte> bytes,
                      const auto& /*moves*/) {
    outgoing.push_back({peer, bytes});
  });
  std::vector<Incoming> incoming;
  to_receive.ForEach(
      [&](int64_t peer, std::span<std::byte> bytes, const auto& /*moves*/) {
        incoming.push_back({peer, bytes});
      });
  SS_RETURN_IF_ERROR(transport.Exchange(outgoing, incoming));
  to_receive.ForEachMove(receive);
  // Nobody runs ahead: a transport may hold what nobody has taken yet.
  return transport.Agree(absl::OkStatus());
}

absl::Status RunRounds(const MovePlan& plan, Transport& transport,
                       SourceMemory source, Receive receive) {
  auto begin = plan.moves.begin();
  for (int64_t round = 0; round < plan.rounds; ++round) {
    const auto end =
        std::find_if(begin, plan.moves.end(),
                     [round](const Move& move) { return move.round != round; });
    SS_RETURN_IF_ERROR(RunRound({begin, end}, transport, source, receive));
    begin = end;
  }
  return absl::OkStatus();
}

// "[1,2]": where element `position` of the box is in its tensor.
std::string IndexIn(const ckpt::Box& box, int64_t position) {
  ckpt::Shape index = box.start;
  for (size_t d = index.size(); d-- > 0;) {
    index[d] += position % box.extent[d];
    position /= box.extent[d];
  }
  return ckpt::ToString(index);
}

// Compares what comes from other replicas with what this rank holds.
class Comparison {
 public:
  Comparison(const std::vector<LogicalTensor>& tensors, SourceMemory memory)
      : tensors_(tensors), memory_(memory) {}

  void Compare(const Move& move, std::span<const std::byte> bytes) {
    mine_.resize(ckpt::NumElements(move.box));
    theirs_.resize(mine_.size());
    const auto mine = std::as_writable_bytes(std::span(mine_));
    for (int64_t role = 0; role < kRoles; ++role) {
      Pack(move, move.to, memory_(move.to.buffer, move.to.piece, role), mine);
      std::ranges::copy(OfRole(bytes, role),
                        std::as_writable_bytes(std::span(theirs_)).begin());
      CompareValues(move, role);
    }
  }

  // DataLoss naming the place of the largest difference, if there is one.
  const absl::Status& status() const { return status_; }

 private:
  void CompareValues(const Move& move, int64_t role) {
    int64_t num_different = 0;
    int64_t worst = -1;
    double largest = -1;
    for (int64_t i = 0; i < std::ssize(mine_); ++i) {
      // Bits: zeros of either sign differ, and a NaN equals itself.
      if (std::bit_cast<uint32_t>(mine_[i]) ==
          std::bit_cast<uint32_t>(theirs_[i])) {
        continue;
      }
      ++num_different;
      const double difference = std::fabs(double{mine_[i]} - theirs_[i]);
      const double size = std::isnan(difference)
                              ? std::numeric_limits<double>::infinity()
                              : difference;
      if (size <= largest) continue;
      largest = size;
      worst = i;
    }
    if (largest <= largest_) return;
    largest_ = largest;
    status_ = absl::DataLossError(absl::StrCat(
        "tensor \"", tensors_[move.to.piece.tensor].name, "\" (",
        kOptimizerRoles[role], "): ranks ", move.from.rank, " and ",
        move.to.rank, " hold replicas of ", ckpt::ToString(move.box), ", of ",
        mine_.size(), " elements ", num_different, " differ, most of all ",
        IndexIn(move.box, worst), ": ", theirs_[worst], " and ", mine_[worst],
        ", by ", largest));
  }

  const std::vector<LogicalTensor>& tensors_;
  SourceMemory memory_;
  std::vector<float> mine_;
  std::vector<float> theirs_;
  double largest_ = -1;
  absl::Status status_;
};

absl::Status CheckArguments(const ModelConfig& model, const Layout& from,
                            const Layout& to, const Transport& transport,
                            int64_t round_bytes) {
  SS_RETURN_IF_ERROR(Validate(model, from));
  SS_RETURN_IF_ERROR(Validate(model, to));
  const int64_t needed = std::max(from.world_size(), to.world_size());
  if (needed > transport.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToString(from), " -> ", ToString(to), " needs ", needed,
                     " ranks, there are ", transport.size()));
  }
  if (round_bytes < kRoles * kItemBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("rounds of ", round_bytes, " bytes have no room for the ",
                     kRoles * kItemBytes, " of one element"));
  }
  return absl::OkStatus();
}

absl::Status CompareReplicas(const ModelConfig& model, const Layout& layout,
                             Transport& transport, SourceMemory source,
                             int64_t round_bytes) {
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  Comparison comparison(tensors, source);
  SS_RETURN_IF_ERROR(RunRounds(
      PlanComparisons(model, layout, transport.rank(), round_bytes), transport,
      source, [&](const Move& move, std::span<const std::byte> bytes) {
        comparison.Compare(move, bytes);
      }));
  return transport.Agree(comparison.status());
}

}  // namespace

absl::Status MemoryToMemory(const ModelConfig& model, const Layout& from,
                            const Layout& to, Transport& transport,
                            SourceMemory source, TargetMemory target,
                            const MemoryToMemoryOptions& options) {
  SS_RETURN_IF_ERROR(
      CheckArguments(model, from, to, transport, options.round_bytes));
  if (options.compare_replicas) {
    SS_RETURN_IF_ERROR(
        CompareReplicas(model, from, transport, source, options.round_bytes));
  }
  SS_ASSIGN_OR_RETURN(
      const MovePlan plan,
      PlanMoves(model, from, to, transport.rank(), options.round_bytes));
  const auto memory = [&](const Move& move, int64_t role) {
    return reinterpret_cast<std::byte*>(
        target(move.to.buffer, move.to.piece, role));
  };
  for (const Move& move : plan.moves) {
    if (!IsLocal(move)) continue;
    for (int64_t role = 0; role < kRoles; ++role) {
      const float* held = source(move.from.buffer, move.from.piece, role);
      ckpt::CopyBox(reinterpret_cast<const std::byte*>(held),
                    move.from.piece.box, memory(move, role), move.to.piece.box,
                    move.box, kItemBytes);
    }
  }
  return RunRounds(plan, transport, source,
                   [&](const Move& move, std::span<const std::byte> bytes) {
                     for (int64_t role = 0; role < kRoles; ++role) {
                       ckpt::CopyBox(OfRole(bytes, role).data(), move.box,
                                     memory(move, role), move.to.piece.box,
                                     move.box, kItemBytes);
                     }
                   });
}

}  // namespace shardshift::reshard
