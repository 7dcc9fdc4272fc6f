// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/thread_group.h"

#include <sched.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "trainer/comm/comm_call.h"
#include "trainer/comm/communicator.h"

namespace shardshift::trainer {
namespace {

// Peers mostly come within a few microseconds, sooner than a sleeper wakes.
constexpr int kYieldsBeforeSleep = 100;
// Within what a clock can add to its present time.
constexpr absl::Duration kForever = absl::Hours(24 * 365 * 100);

}  // namespace

void ThreadWorld::Fail(int rank, const absl::Status& status) {
  {
    std::lock_guard lock(failure_mutex_);
    if (!failure_.ok()) return;
    failure_ = IsAgreed(status) ? status
                                : Annotate(status, absl::StrCat("rank ", rank));
  }
  failed_.store(true, std::memory_order_release);
  for (int r = 0; r < size(); ++r) Wake(r);
}

absl::Status ThreadWorld::failure() const {
  std::lock_guard lock(failure_mutex_);
  return failure_;
}

absl::Status ThreadWorld::AbortedByFailure() const {
  return absl::AbortedError(
      absl::StrCat("another rank failed: ", failure().message()));
}

bool ThreadWorld::Wait(int rank, absl::Duration timeout,
                       absl::FunctionRef<bool()> done) {
  for (int i = 0; i < kYieldsBeforeSleep; ++i) {
    if (done()) return true;
    sched_yield();
  }
  Bell& bell = bells_[rank];
  std::unique_lock lock(bell.mutex);
  return bell.rung.wait_for(
      lock, absl::ToChronoNanoseconds(std::min(timeout, kForever)), done);
}

void ThreadWorld::Wake(int rank) {
  Bell& bell = bells_[rank];
  // A sleeper looks at its condition under the mutex: after this lock it has
  // either seen the change or is asleep and hears the bell.
  { std::lock_guard lock(bell.mutex); }
  // All: the rank may wait in one group while a save of its waits in another.
  bell.rung.notify_all();
}

ThreadGroup::ThreadGroup(ThreadWorld* world, std::string name,
                         std::vector<int> members)
    : world_(world),
      name_(std::move(name)),
      members_(std::move(members)),
      slots_(members_.size()) {}

int64_t ThreadGroup::Arrive(int rank) {
  const int64_t meeting =
      slots_[rank].meetings.fetch_add(1, std::memory_order_relaxed) + 1;
  const int64_t complete = meeting * size();
  if (arrivals_.fetch_add(1, std::memory_order_acq_rel) + 1 == complete) {
    for (int r = 0; r < size(); ++r) {
      if (r != rank) world_->Wake(members_[r]);
    }
  }
  return complete;
}

bool ThreadGroup::Withdraw(int64_t complete) {
  int64_t arrivals = arrivals_.load(std::memory_order_acquire);
  while (arrivals < complete) {
    if (arrivals_.compare_exchange_weak(arrivals, arrivals - 1,
                                        std::memory_order_acq_rel)) {
      return true;
    }
  }
  return false;
}

absl::Status ThreadGroup::Begin(int rank, const ThreadCall& call,
                                absl::Duration timeout) {
  slots_[rank].call = call;
  const int64_t complete = Arrive(rank);
  const auto all_here = [&] {
    return arrivals_.load(std::memory_order_acquire) >= complete;
  };
  const bool in_time = world_->Wait(world_rank(rank), timeout, [&] {
    return all_here() || world_->failed();
  });
  if (all_here() || !Withdraw(complete)) return absl::OkStatus();
  if (in_time) return world_->AbortedByFailure();
  return TimedOut(rank, call.kind, timeout, MissingFrom(complete / size()));
}

void ThreadGroup::Meet(int rank) {
  const int64_t complete = Arrive(rank);
  world_->Wait(world_rank(rank), absl::InfiniteDuration(), [&] {
    return arrivals_.load(std::memory_order_acquire) >= complete;
  });
}

absl::Status ThreadGroup::CheckCallsAgree() const {
  const ThreadCall& first = call(0);
  for (int r = 1; r < size(); ++r) {
    SS_RETURN_IF_ERROR(CheckSameCall(Describe(first.kind), world_rank(0),
                                     first.agreed(), world_rank(r),
                                     call(r).agreed()));
  }
  return absl::OkStatus();
}

void ThreadGroup::Post(int source, int destination, int64_t tag,
                       std::span<const std::byte> data) {
  Slot& slot = slots_[destination];
  {
    std::lock_guard lock(slot.mail_mutex);
    slot.mail[{source, tag}].emplace_back(data.begin(), data.end());
  }
  world_->Wake(world_rank(destination));
}

std::optional<ThreadGroup::Message> ThreadGroup::TryTake(int rank,
                                                         MessageKey key) {
  Slot& slot = slots_[rank];
  std::lock_guard lock(slot.mail_mutex);
  const auto found = slot.mail.find(key);
  if (found == slot.mail.end()) return std::nullopt;
  Message message = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) slot.mail.erase(found);
  return message;
}

absl::StatusOr<std::vector<std::byte>> ThreadGroup::Take(
    int rank, int source, int64_t tag, absl::Duration timeout) {
  std::optional<Message> message;
  const bool in_time = world_->Wait(world_rank(rank), timeout, [&] {
    if (!message.has_value()) message = TryTake(rank, {source, tag});
    return message.has_value() || world_->failed();
  });
  if (message.has_value()) return *std::move(message);
  if (in_time) return world_->AbortedByFailure();
  return TimedOut(rank, CommKind::kRecv, timeout,
                  absl::StrCat("a message with tag ", tag, " of rank ",
                               world_rank(source)));
}

absl::Status ThreadGroup::TimedOut(int rank, CommKind kind,
                                   absl::Duration timeout,
                                   absl::string_view awaited) {
  absl::Status status = absl::DeadlineExceededError(
      absl::StrCat(Describe(kind), ": waited ", absl::FormatDuration(timeout),
                   " for ", awaited));
  world_->Fail(world_rank(rank), status);
  return status;
}

std::string ThreadGroup::Describe(CommKind kind) const {
  return DescribeCall(kind, name_, members_);
}

std::string ThreadGroup::MissingFrom(int64_t meeting) const {
  std::vector<int> missing;
  for (int r = 0; r < size(); ++r) {
    if (slots_[r].meetings.load(std::memory_order_relaxed) < meeting) {
      missing.push_back(world_rank(r));
    }
  }
  return RankList(std::move(missing));
}

}  // namespace shardshift::trainer
