// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/mpi/mpi_mail.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace shardshift::trainer {
namespace {

constexpr int kLetterTag = 1;
constexpr int kFirstBulkTag = 2;
// Reused after so many letters, when the first is long gone.
constexpr int kMaxBulkTags = 1 << 20;
constexpr int64_t kMaxPieceBytes = int64_t{1} << 30;  // MPI counts by int

// Peers mostly come within microseconds; longer waits leave the cores to them.
constexpr absl::Duration kYieldFor = absl::Microseconds(500);
constexpr absl::Duration kShortestSleep = absl::Microseconds(50);
constexpr absl::Duration kLongestSleep = absl::Milliseconds(1);
constexpr std::chrono::microseconds kSendOnEvery(200);

template <typename Bytes, typename StartPiece>
Transfer StartPieces(Bytes data, StartPiece start) {
  Transfer transfer;
  int64_t at = 0;
  do {
    const int64_t bytes = std::min(kMaxPieceBytes, std::ssize(data) - at);
    start(data.data() + at, static_cast<int>(bytes), transfer.emplace_back());
    at += bytes;
  } while (at < std::ssize(data));
  return transfer;
}

}  // namespace

MpiMail::MpiMail(MpiCalls& calls)
    : calls_(calls),
      bulk_tags_(calls.size(), 0),
      sends_([this](const std::stop_token& stop) { SendOnBeside(stop); }) {}

MpiMail::~MpiMail() = default;

void MpiMail::Check(int code, const char* call) {
  if (code == 0 || !error_.ok()) return;
  error_ =
      absl::InternalError(absl::StrCat(call, ": ", calls_.ErrorText(code)));
}

absl::Status MpiMail::error() const {
  std::lock_guard lock(mutex_);
  return error_;
}

void MpiMail::Post(int to, const LetterHead& head,
                   std::span<const std::byte> body) {
  Letter letter{.head = head, .bytes = {}};
  letter.bytes.resize(sizeof(head) + body.size());
  std::memcpy(letter.bytes.data(), &head, sizeof(head));
  if (!body.empty()) {
    std::memcpy(letter.bytes.data() + sizeof(head), body.data(), body.size());
  }
  std::lock_guard lock(mutex_);
  if (is_self(to)) {
    letters_[{head.kind, head.context, to, head.tag}].push_back(
        std::move(letter));
    return;
  }
  SendOwned(to, kLetterTag, std::move(letter.bytes));
}

void MpiMail::PostMessage(int to, uint64_t context, int64_t tag,
                          std::span<const std::byte> data) {
  LetterHead head = {
      .kind = LetterKind::kMessage, .context = context, .tag = tag};
  if (is_self(to) || std::ssize(data) <= kShortBytes) {
    Post(to, head, data);
    return;
  }
  head.bulk_tag = NextBulkTag(to);
  head.bulk_bytes = std::ssize(data);
  Post(to, head, {});
  std::vector<std::byte> copy(data.begin(), data.end());
  std::lock_guard lock(mutex_);
  SendOwned(to, head.bulk_tag, std::move(copy));
}

void MpiMail::SendOwned(int to, int tag, std::vector<std::byte> bytes) {
  Transfer transfer = StartSendHeld(to, tag, bytes);
  if (HasEnded(transfer)) return;
  outgoing_.push_back({std::move(transfer), std::move(bytes)});
  has_outgoing_.notify_all();
}

int MpiMail::NextBulkTag(int to) {
  std::lock_guard lock(mutex_);
  const int num_tags = std::min(kMaxBulkTags, calls_.max_tag() - kFirstBulkTag);
  return kFirstBulkTag + bulk_tags_[to]++ % num_tags;
}

Transfer MpiMail::StartSendHeld(int to, int tag,
                                std::span<const std::byte> data) {
  return StartPieces(
      data, [&](const std::byte* piece, int bytes, MpiRequest& request) {
        Check(calls_.Send(piece, bytes, to, tag, request), "MPI_Isend");
      });
}

Transfer MpiMail::StartSend(int to, int bulk_tag,
                            std::span<const std::byte> data) {
  std::lock_guard lock(mutex_);
  return StartSendHeld(to, bulk_tag, data);
}

Transfer MpiMail::StartReceive(int from, int bulk_tag,
                               std::span<std::byte> data) {
  std::lock_guard lock(mutex_);
  return StartPieces(data, [&](std::byte* piece, int bytes,
                               MpiRequest& request) {
    Check(calls_.Receive(piece, bytes, from, bulk_tag, request), "MPI_Irecv");
  });
}

bool MpiMail::HasEnded(Transfer& transfer) {
  while (!transfer.empty() && error_.ok()) {
    bool has_ended = false;
    Check(calls_.Test(transfer.back(), has_ended), "MPI_Test");
    if (!has_ended) break;
    transfer.pop_back();
  }
  return transfer.empty();
}

void MpiMail::Cancel(Transfer& transfer) {
  for (MpiRequest& piece : transfer) {
    Check(calls_.Cancel(piece), "MPI_Cancel");
  }
}

void MpiMail::TakeIn() {
  while (error_.ok()) {
    MpiMessage message;
    Check(calls_.Find(kLetterTag, message), "MPI_Improbe");
    if (message.source < 0) return;
    Letter letter;
    letter.bytes.resize(message.bytes);
    Check(calls_.Take(message, letter.bytes.data()), "MPI_Mrecv");
    std::memcpy(&letter.head, letter.bytes.data(), sizeof(LetterHead));
    const LetterHead& head = letter.head;
    letters_[{head.kind, head.context, message.source, head.tag}].push_back(
        std::move(letter));
  }
}

void MpiMail::Poll() {
  TakeIn();
  outgoing_.remove_if(
      [this](Outgoing& sent) { return HasEnded(sent.transfer); });
}

bool MpiMail::Wait(absl::Duration timeout, absl::FunctionRef<bool()> done) {
  const absl::Time begin = absl::Now();
  absl::Duration sleep = kShortestSleep;
  while (true) {
    {
      std::lock_guard lock(mutex_);
      Poll();
      if (done()) return true;
      if (!error_.ok()) return false;
    }
    const absl::Duration waited = absl::Now() - begin;
    if (waited >= timeout) return false;
    if (waited < kYieldFor) {
      sched_yield();
    } else {
      absl::SleepFor(std::min(sleep, timeout - waited));
      sleep = std::min(2 * sleep, kLongestSleep);
    }
  }
}

void MpiMail::SendOnBeside(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (
      has_outgoing_.wait(lock, stop, [this] { return !outgoing_.empty(); })) {
    Poll();
    lock.unlock();
    std::this_thread::sleep_for(kSendOnEvery);
    lock.lock();
    if (stop.stop_requested()) return;
  }
}

std::optional<Letter> MpiMail::TryTake(const LetterKey& key) {
  const auto found = letters_.find(key);
  if (found == letters_.end()) return std::nullopt;
  Letter letter = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) letters_.erase(found);
  return letter;
}

const std::pair<const LetterKey, std::deque<Letter>>* MpiMail::FirstOf(
    LetterKind kind, uint64_t context) const {
  const auto found = letters_.lower_bound({kind, context, 0, 0});
  if (found == letters_.end() || found->first.kind != kind ||
      found->first.context != context) {
    return nullptr;
  }
  return &*found;
}

void MpiMail::Discard(uint64_t first, uint64_t last, absl::Duration timeout) {
  std::list<Outgoing> unread;  // what nobody asked for, with room for it
  std::vector<std::pair<int, LetterHead>> heads;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(letters_, [&](const auto& entry) {
      const auto& [key, letters] = entry;
      if (key.context < first || key.context > last) return false;
      for (const Letter& letter : letters) {
        if (letter.head.bulk_bytes > 0) {
          heads.emplace_back(key.source, letter.head);
        }
      }
      return true;
    });
  }
  for (const auto& [source, head] : heads) {
    Outgoing& room = unread.emplace_back();
    room.bytes.resize(head.bulk_bytes);
    room.transfer = StartReceive(source, head.bulk_tag, room.bytes);
  }
  Wait(timeout, [&] {
    return std::ranges::all_of(
        unread, [this](Outgoing& room) { return HasEnded(room.transfer); });
  });
}

bool MpiMail::Flush(absl::Duration timeout) {
  return Wait(timeout, [this] { return outgoing_.empty(); });
}

}  // namespace shardshift::trainer
