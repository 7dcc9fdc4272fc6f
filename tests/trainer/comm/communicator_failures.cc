// The part of the conformance suite about ranks that fail, disagree or stay
// away.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <stdexcept>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "ckpt/core/status_macros.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/comm/communicator_conformance.h"

namespace shardshift::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_P(CommunicatorConformance, AFailingRankFreesTheOthers) {
  const int failing = size() / 2;
  EXPECT_THAT(Run([&](Communicator& comm) -> absl::Status {
                if (comm.rank() == failing) {
                  return absl::DataLossError("boom");
                }
                return comm.Barrier();
              }),
              StatusIs(absl::StatusCode::kDataLoss,
                       absl::StrCat("rank ", failing, ": boom")));
}

TEST_P(CommunicatorConformance, AFailingRankFreesTheReceiversOfItsGroups) {
  EXPECT_THAT(Run([&](Communicator& comm) -> absl::Status {
                SS_ASSIGN_OR_RETURN(auto twin, comm.Split(0, comm.rank()));
                if (comm.rank() == 0) return absl::DataLossError("boom");
                std::vector<std::byte> data(1);
                const absl::Status status = twin->Recv(0, 0, data);
                EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted,
                                             HasSubstr("rank 0: boom")));
                return status;
              }),
              StatusIs(absl::StatusCode::kDataLoss, "rank 0: boom"));
}

TEST_P(CommunicatorConformance, AnExceptionIsAFailure) {
  EXPECT_THAT(Run([&](Communicator& comm) -> absl::Status {
                if (comm.rank() == size() - 1) throw std::runtime_error("bang");
                return comm.Barrier();
              }),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("bang")));
}

// Buffers die with each call: a rank that left a collective early would have
// its peers read freed memory.
TEST_P(CommunicatorConformance, AFailureElsewhereLeavesNoReaderBehind) {
  if (size() < 3) GTEST_SKIP() << "needs a group of two that rank 0 is not in";
  for (int repeat = 0; repeat < 20; ++repeat) {
    const absl::Status status = Run([&](Communicator& comm) -> absl::Status {
      SS_ASSIGN_OR_RETURN(auto part, comm.Split(comm.rank() == 0 ? 1 : 0, 0));
      for (int i = 0; comm.rank() > 0; ++i) {
        const std::vector<std::byte> mine(5000, static_cast<std::byte>(i));
        std::vector<std::byte> all(5000 * part->size());
        SS_RETURN_IF_ERROR(part->AllGather(mine, all));
        EXPECT_EQ(all.front(), static_cast<std::byte>(i));
        EXPECT_EQ(all.back(), static_cast<std::byte>(i));
      }
      absl::SleepFor(absl::Milliseconds(2));
      return absl::DataLossError("boom");
    });
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, "rank 0: boom"));
  }
}

// The long way, where ranks send to each other what the letters of others
// announced.
TEST_P(CommunicatorConformance, AFailureBetweenLongSumsFreesTheOthers) {
  for (int repeat = 0; repeat < 10; ++repeat) {
    EXPECT_THAT(Run([&](Communicator& comm) -> absl::Status {
                  std::vector<float> x(50000, 1.0f);
                  for (int i = 0; i < 5 || comm.rank() > 0; ++i) {
                    SS_RETURN_IF_ERROR(comm.TreeAllReduceInPlace(x, 1));
                    if (size() == 1) break;
                  }
                  return absl::DataLossError("boom");
                }),
                StatusIs(absl::StatusCode::kDataLoss, "rank 0: boom"));
  }
}

TEST_P(CommunicatorConformance, ATimeoutNamesTheMissing) {
  if (size() == 1) GTEST_SKIP() << "a group of one waits for nobody";
  const int missing = size() - 1;
  EXPECT_THAT(Run(
                  [&](Communicator& comm) {
                    if (comm.rank() == missing) return absl::OkStatus();
                    std::vector<std::byte> all(size());
                    return comm.AllGather(std::span(all).first(1), all);
                  },
                  absl::Milliseconds(100)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("AllGather in group \"world\""),
                             HasSubstr(absl::StrCat("for rank ", missing)))));
}

TEST_P(CommunicatorConformance, ATimeoutOfRecvNamesSourceAndTag) {
  EXPECT_THAT(Run(
                  [&](Communicator& comm) {
                    if (comm.rank() != 0) return absl::OkStatus();
                    std::vector<std::byte> data(1);
                    return comm.Recv(size() - 1, 77, data);
                  },
                  absl::Milliseconds(100)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr(absl::StrCat("a message with tag 77 of rank ",
                                              size() - 1))));
}

TEST_P(CommunicatorConformance, ARaisedTimeoutOutlastsASlowPeer) {
  EXPECT_OK(Run(
      [&](Communicator& comm) {
        comm.set_timeout(absl::Minutes(2));
        if (comm.rank() == 0) absl::SleepFor(absl::Milliseconds(300));
        return comm.Barrier();
      },
      absl::Milliseconds(100)));
}

TEST_P(CommunicatorConformance, SizesThatDisagreeAreRefusedOnAllRanks) {
  if (size() == 1) GTEST_SKIP() << "a group of one cannot disagree";
  EXPECT_OK(Run([&](Communicator& comm) {
    const bool last = comm.rank() == size() - 1;
    std::vector<std::byte> data(last ? 12 : 16);
    EXPECT_THAT(comm.Broadcast(data, 0),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("size 16"), HasSubstr("size 12"))));
    std::vector<std::byte> all(data.size() * size());
    EXPECT_THAT(comm.AllGather(data, all),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("16 bytes"), HasSubstr("12 bytes"))));
    std::vector<float> x(last ? 0 : 7);
    EXPECT_THAT(comm.AllReduceMax(x),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("size 7"), HasSubstr("size 0"))));
    return comm.Barrier();
  }));
}

TEST_P(CommunicatorConformance, DifferentCallsAreRefusedOnAllRanks) {
  if (size() == 1) GTEST_SKIP() << "a group of one cannot disagree";
  EXPECT_OK(Run([&](Communicator& comm) {
    std::vector<float> x(1);
    EXPECT_THAT(comm.rank() == 0 ? comm.Barrier() : comm.AllReduceMax(x),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("rank 0 has Barrier"),
                               HasSubstr("rank 1 has AllReduceMax"))));
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, AgreeOnStatusTakesTheLowestFailingRank) {
  EXPECT_OK(Run([&](Communicator& comm) {
    EXPECT_OK(AgreeOnStatus(comm, absl::OkStatus()));
    const int lowest = size() / 3;
    const absl::Status mine =
        comm.rank() < lowest
            ? absl::OkStatus()
            : absl::NotFoundError(absl::StrCat("no file ", comm.rank()));
    EXPECT_THAT(AgreeOnStatus(comm, mine),
                StatusIs(absl::StatusCode::kNotFound,
                         absl::StrCat("rank ", lowest, ": no file ", lowest)));
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace shardshift::trainer
