// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/mpi/mpi_world.h"

#include <cfenv>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/status_macros.h"
#include "trainer/comm/mpi/mpi_communicator.h"
#include "trainer/comm/mpi/mpi_launch.h"
#include "trainer/comm/thread_communicator.h"

namespace shardshift::trainer {
namespace {

// A context is a run, the world rank that named the group, and its number.
constexpr int kRunShift = 48;
constexpr int kRankShift = 32;

// How long those that live have to notice a failure and to end.
constexpr absl::Duration kGrace = absl::Seconds(10);

std::string Pack(const absl::Status& status) {
  const auto code = static_cast<char>(status.code());
  return absl::StrCat(absl::string_view(&code, 1), status.message());
}

absl::Status Unpack(std::span<const std::byte> body) {
  const absl::string_view text(reinterpret_cast<const char*>(body.data()),
                               body.size());
  return absl::Status(static_cast<absl::StatusCode>(text[0]), text.substr(1));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MpiWorld>> MpiWorld::Join() {
  SS_ASSIGN_OR_RETURN(MpiCalls* const calls, StartMpi());
  return std::unique_ptr<MpiWorld>(new MpiWorld(*calls));
}

MpiWorld::~MpiWorld() {
  if (missing_.empty()) calls_.Finish();
}

void MpiWorld::Abort(int exit_code) {
  calls_.Abort(exit_code);
  std::_Exit(exit_code);
}

uint64_t MpiWorld::run_context() const { return run_ << kRunShift; }

uint64_t MpiWorld::NewContext() {
  return run_context() | static_cast<uint64_t>(rank()) << kRankShift |
         ++num_groups_;
}

absl::Status MpiWorld::Run(
    absl::Duration timeout,
    const std::function<absl::Status(Communicator&)>& body) {
  std::fesetenv(FE_DFL_ENV);  // the same rounding and denormals on all ranks
  std::vector<int> members(size());
  std::iota(members.begin(), members.end(), 0);
  MpiCommunicator comm(*this, {run_context(), "world", std::move(members)},
                       rank());
  comm.set_timeout(timeout);
  const absl::Status status = CatchExceptions([&] { return body(comm); });
  if (!status.ok()) Fail(status);
  return End();
}

void MpiWorld::Fail(const absl::Status& status) {
  const absl::Status named =
      IsAgreed(status) ? status
                       : Annotate(status, absl::StrCat("rank ", rank()));
  {
    std::lock_guard lock(failure_mutex_);
    if (!failure_.ok()) return;
    failure_ = named;
  }
  const std::string packed = Pack(named);
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    mail_.Post(r, {.kind = LetterKind::kFailure, .context = run_context()},
               std::as_bytes(std::span(packed)));
  }
}

bool MpiWorld::failed() {
  std::lock_guard lock(failure_mutex_);
  if (!failure_.ok()) return true;
  const auto* const told = mail_.FirstOf(LetterKind::kFailure, run_context());
  if (told == nullptr) return false;
  failure_ = Unpack(told->second.front().body());
  return true;
}

absl::Status MpiWorld::AbortedByFailure() {
  std::lock_guard lock(failure_mutex_);
  return absl::AbortedError(
      absl::StrCat("another rank failed: ", failure_.message()));
}

bool MpiWorld::HasEnded(int world_rank) const {
  return mail_.Has({LetterKind::kEnd, run_context(), world_rank, 0});
}

bool MpiWorld::AllHaveEnded() const {
  for (int r = 0; r < size(); ++r) {
    if (!HasEnded(r)) return false;
  }
  return true;
}

absl::Status MpiWorld::End() {
  for (int r = 0; r < size(); ++r) {
    mail_.Post(r, {.kind = LetterKind::kEnd, .context = run_context()}, {});
  }
  // Others may have work to finish, on files for instance.
  mail_.Wait(absl::InfiniteDuration(),
             [this] { return AllHaveEnded() || failed(); });
  mail_.Wait(kGrace, [this] {
    missing_.clear();
    for (int r = 0; r < size(); ++r) {
      if (!HasEnded(r)) missing_.push_back(r);
    }
    failed();
    return missing_.empty();
  });
  if (const absl::Status error = mail_.error(); !error.ok()) Fail(error);
  std::lock_guard lock(failure_mutex_);
  if (!missing_.empty()) return failure_;
  mail_.Discard(run_context(), run_context() | ((uint64_t{1} << kRunShift) - 1),
                kGrace);
  mail_.Flush(kGrace);
  ++run_;
  num_groups_ = 0;
  return std::exchange(failure_, absl::OkStatus());
}

}  // namespace shardshift::trainer
