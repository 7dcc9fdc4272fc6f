// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/mpi/mpi_call.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::trainer {
namespace {

// Between the beginning of a call and its end nobody waits for anything but
// data under way: who takes longer than this hangs.
constexpr absl::Duration kLeastTimeoutWithin = absl::Minutes(1);
// A member that withdraws has told of the failure, or passes it on.
constexpr absl::Duration kFailureFollows = absl::Seconds(10);

// A notice in a letter; what has any length follows it.
struct PackedNotice {
  int64_t kind, size, detail, begin, end, color, key;
  uint64_t context;
  int64_t num_sizes, num_nodes, data_bytes;
};

template <typename T>
void AppendAll(std::span<const T> values, std::vector<std::byte>& to) {
  const auto bytes = std::as_bytes(values);
  to.insert(to.end(), bytes.begin(), bytes.end());
}

template <typename T>
void TakeAll(int64_t count, std::span<const std::byte>& from,
             std::vector<T>& to) {
  to.resize(count);
  if (count == 0) return;
  std::memcpy(to.data(), from.data(), count * sizeof(T));
  from = from.subspan(count * sizeof(T));
}

std::vector<std::byte> Pack(const CallNotice& notice) {
  const PackedNotice head = {static_cast<int64_t>(notice.call.kind),
                             notice.call.size,
                             notice.call.detail,
                             notice.begin,
                             notice.end,
                             notice.color,
                             notice.key,
                             notice.context,
                             std::ssize(notice.call.sizes_bytes),
                             std::ssize(notice.nodes),
                             std::ssize(notice.data)};
  std::vector<std::byte> bytes;
  AppendAll(std::span(&head, 1), bytes);
  AppendAll(notice.call.sizes_bytes, bytes);
  AppendAll(std::span(notice.nodes), bytes);
  AppendAll(std::span<const std::byte>(notice.data), bytes);
  return bytes;
}

CallNotice Unpack(const Letter& letter) {
  std::span<const std::byte> body = letter.body();
  std::vector<PackedNotice> head;
  TakeAll(1, body, head);
  CallNotice notice;
  notice.call = {.kind = static_cast<CommKind>(head[0].kind),
                 .size = head[0].size,
                 .detail = head[0].detail};
  notice.begin = head[0].begin;
  notice.end = head[0].end;
  notice.color = head[0].color;
  notice.key = head[0].key;
  notice.context = head[0].context;
  notice.bulk_tag = letter.head.bulk_tag;
  TakeAll(head[0].num_sizes, body, notice.sizes_bytes);
  TakeAll(head[0].num_nodes, body, notice.nodes);
  TakeAll(head[0].data_bytes, body, notice.data);
  return notice;
}

}  // namespace

MpiCall::MpiCall(MpiWorld& world, const MpiGroup& group, int rank,
                 int64_t number, absl::Duration timeout)
    : world_(world),
      group_(group),
      rank_(rank),
      number_(number),
      timeout_(timeout),
      notices_(group.members.size()),
      has_told_(group.members.size()),
      send_tags_(group.members.size()) {}

std::string MpiCall::Describe() const {
  return DescribeCall(kind_, group_.name, group_.members);
}

bool MpiCall::TakeNotices() {
  bool all_told = true;
  for (int r = 0; r < size(); ++r) {
    if (has_told_[r]) continue;
    const std::optional<Letter> letter = world_.mail().TryTake(
        {LetterKind::kCall, group_.context, group_.members[r], number_});
    if (letter.has_value()) {
      notices_[r] = Unpack(*letter);
      has_told_[r] = true;
    } else {
      all_told = false;
    }
  }
  return all_told;
}

absl::Status MpiCall::Begin(CallNotice mine) {
  MpiMail& mail = world_.mail();
  kind_ = mine.call.kind;
  const std::vector<std::byte> packed = Pack(mine);
  for (int64_t i = 1; i < size(); ++i) {
    const int to = group_.members[(rank_ + i) % size()];
    const int tag = mail.NextBulkTag(to);
    send_tags_[(rank_ + i) % size()] = tag;
    mail.Post(to,
              {.kind = LetterKind::kCall,
               .bulk_tag = tag,
               .context = group_.context,
               .tag = number_},
              packed);
  }
  mine.sizes_bytes.assign(mine.call.sizes_bytes.begin(),
                          mine.call.sizes_bytes.end());
  notices_[rank_] = std::move(mine);
  has_told_[rank_] = true;

  bool all_told = false;
  const bool in_time = mail.Wait(timeout_, [&] {
    all_told = TakeNotices();
    return all_told || world_.failed();
  });
  if (!all_told) {
    if (in_time) {
      Withdraw();
      return world_.AbortedByFailure();
    }
    std::vector<int> missing;
    for (int r = 0; r < size(); ++r) {
      if (!has_told_[r]) missing.push_back(group_.members[r]);
    }
    return Fail(absl::DeadlineExceededError(
        absl::StrCat(Describe(), ": waited ", absl::FormatDuration(timeout_),
                     " for ", RankList(std::move(missing)))));
  }
  for (CallNotice& notice : notices_) {
    notice.call.sizes_bytes = notice.sizes_bytes;
  }
  for (int r = 1; r < size(); ++r) {
    SS_RETURN_IF_ERROR(CheckSameCall(Describe(), group_.members[0],
                                     notices_[0].call, group_.members[r],
                                     notices_[r].call));
  }
  return absl::OkStatus();
}

void MpiCall::Send(int rank, std::span<const std::byte> data) {
  if (data.empty()) return;
  parts_.push_back({.rank = rank,
                    .is_receive = false,
                    .transfer = world_.mail().StartSend(
                        group_.members[rank], send_tags_[rank], data)});
}

void MpiCall::Receive(int rank, std::span<std::byte> data) {
  if (data.empty()) return;
  parts_.push_back({.rank = rank,
                    .is_receive = true,
                    .transfer = world_.mail().StartReceive(
                        group_.members[rank], notices_[rank].bulk_tag, data)});
}

bool MpiCall::HasWithdrawn(int rank) const {
  return world_.mail().Has(
      {LetterKind::kWithdrawal, group_.context, group_.members[rank], number_});
}

// What a member sent before it withdrew has arrived before the withdrawal, or
// is being received. Of the rest, receives are cancelled; sends are left, as
// nobody will ask for them.
bool MpiCall::HasEnded(Part& part) {
  if (world_.mail().HasEnded(part.transfer)) return true;
  if (!HasWithdrawn(part.rank)) return false;
  if (!part.is_given_up && part.is_receive) {
    world_.mail().Cancel(part.transfer);
  }
  part.is_given_up = true;
  return !part.is_receive || world_.mail().HasEnded(part.transfer);
}

absl::Status MpiCall::Finish() {
  const absl::Duration timeout = std::max(timeout_, kLeastTimeoutWithin);
  std::vector<bool> is_over(parts_.size());
  const bool in_time = world_.mail().Wait(timeout, [&] {
    bool all_over = true;
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (!is_over[i]) is_over[i] = HasEnded(parts_[i]);
      if (!is_over[i]) all_over = false;
    }
    return all_over;
  });
  const bool given_up = std::ranges::any_of(parts_, &Part::is_given_up);
  std::vector<int> hanging;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (!is_over[i]) hanging.push_back(group_.members[parts_[i].rank]);
  }
  parts_.clear();
  if (!in_time) {
    std::ranges::sort(hanging);
    hanging.erase(std::ranges::unique(hanging).begin(), hanging.end());
    return Fail(absl::DeadlineExceededError(
        absl::StrCat(Describe(), ": waited ", absl::FormatDuration(timeout),
                     " for data of ", RankList(std::move(hanging)))));
  }
  if (!given_up) return absl::OkStatus();
  Withdraw();
  world_.mail().Wait(kFailureFollows, [this] { return world_.failed(); });
  return world_.AbortedByFailure();
}

absl::Status MpiCall::Fail(absl::Status status) {
  // If MPI itself failed, that is why nobody came.
  if (const absl::Status error = world_.mail().error(); !error.ok()) {
    status = Annotate(error, Describe());
  }
  world_.Fail(status);
  Withdraw();
  return status;
}

void MpiCall::Withdraw() {
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    world_.mail().Post(group_.members[r],
                       {.kind = LetterKind::kWithdrawal,
                        .context = group_.context,
                        .tag = number_},
                       {});
  }
}

}  // namespace shardshift::trainer
