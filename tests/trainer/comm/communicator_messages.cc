// The part of the conformance suite about messages and groups.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <future>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/comm/communicator_conformance.h"

namespace shardshift::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_P(CommunicatorConformance, RecvMatchesSourceAndTag) {
  EXPECT_OK(Run([&](Communicator& comm) {
    for (int peer = 0; peer < size(); ++peer) {
      for (int64_t tag : {1, 2}) {
        for (int64_t nth : {0, 1}) {
          SS_RETURN_IF_ERROR(
              comm.Send(peer, tag, BytesOf(comm.rank(), 3000 * tag + nth)));
        }
      }
    }
    for (int peer = size() - 1; peer >= 0; --peer) {
      for (int64_t tag : {2, 1}) {
        for (int64_t nth : {0, 1}) {
          std::vector<std::byte> data(3000 * tag + nth);
          SS_RETURN_IF_ERROR(comm.Recv(peer, tag, data));
          EXPECT_EQ(data, BytesOf(peer, 3000 * tag + nth));
        }
      }
    }
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, RecvRefusesAnotherSize) {
  EXPECT_OK(Run([&](Communicator& comm) {
    for (const int64_t count : {12, 123456}) {
      SS_RETURN_IF_ERROR(comm.Send((comm.rank() + 1) % size(), 5,
                                   BytesOf(comm.rank(), count)));
      std::vector<std::byte> data(16);
      EXPECT_THAT(comm.Recv((comm.rank() + size() - 1) % size(), 5, data),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           AllOf(HasSubstr(absl::StrCat(count, " bytes")),
                                 HasSubstr("16"))));
    }
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, AllToAllHandsOutPartsOfAnySize) {
  // From s to r: nothing, a few bytes, or many.
  const auto bytes_of = [](int from, int to) {
    const int64_t kind = (from + 2 * to) % 3;
    return kind == 0 ? 0 : kind * kind * kind * 5000 + from + to;
  };
  EXPECT_OK(Run([&](Communicator& comm) {
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<std::vector<std::byte>> to;
      std::vector<std::vector<std::byte>> from;
      for (int r = 0; r < size(); ++r) {
        to.push_back(BytesOf(comm.rank() + r + turn, bytes_of(comm.rank(), r)));
        from.emplace_back(bytes_of(r, comm.rank()));
      }
      SS_RETURN_IF_ERROR(comm.AllToAllV(
          std::vector<std::span<const std::byte>>(to.begin(), to.end()),
          std::vector<std::span<std::byte>>(from.begin(), from.end())));
      for (int r = 0; r < size(); ++r) {
        EXPECT_EQ(from[r],
                  BytesOf(r + comm.rank() + turn, bytes_of(r, comm.rank())));
      }
    }
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, AllToAllRefusesAnotherNumberOfParts) {
  EXPECT_OK(Run([&](Communicator& comm) {
    const std::vector<std::span<const std::byte>> send(size() + 1);
    const std::vector<std::span<std::byte>> receive(size());
    EXPECT_THAT(comm.AllToAllV(send, receive),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("parts to send")));
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, SplitOrdersByKeyWithinAColor) {
  EXPECT_OK(Run([&](Communicator& comm) {
    const int color = comm.rank() % 2;
    SS_ASSIGN_OR_RETURN(auto part, comm.Split(color, -comm.rank(), "part"));
    const int expected_size = (size() + 1 - color) / 2;
    EXPECT_EQ(part->size(), expected_size);
    EXPECT_EQ(part->rank(), expected_size - 1 - comm.rank() / 2);
    std::vector<int64_t> x = {comm.rank() + 1};
    for (int i = 0; i < 10; ++i) SS_RETURN_IF_ERROR(part->Barrier());
    SS_RETURN_IF_ERROR(part->AllReduceSum(x));
    int64_t expected = 0;
    for (int r = color; r < size(); r += 2) expected += r + 1;
    EXPECT_EQ(x[0], expected);
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, SplitKeepsMessagesApart) {
  EXPECT_OK(Run([&](Communicator& comm) {
    SS_ASSIGN_OR_RETURN(auto twin, comm.Split(0, comm.rank()));
    const int peer = (comm.rank() + 1) % size();
    const int source = (comm.rank() + size() - 1) % size();
    SS_RETURN_IF_ERROR(comm.Send(peer, 0, BytesOf(comm.rank(), 3)));
    SS_RETURN_IF_ERROR(twin->Send(peer, 0, BytesOf(comm.rank() + 50, 3)));
    std::vector<std::byte> data(3);
    SS_RETURN_IF_ERROR(twin->Recv(source, 0, data));
    EXPECT_EQ(data, BytesOf(source + 50, 3));
    SS_RETURN_IF_ERROR(comm.Recv(source, 0, data));
    EXPECT_EQ(data, BytesOf(source, 3));
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorConformance, SplitGivesNothingForANegativeColor) {
  EXPECT_OK(Run([&](Communicator& comm) {
    SS_ASSIGN_OR_RETURN(auto part, comm.Split(comm.rank() == 0 ? -1 : 3, 0));
    EXPECT_EQ(part == nullptr, comm.rank() == 0);
    if (part != nullptr) {
      EXPECT_EQ(part->size(), size() - 1);
      EXPECT_EQ(part->rank(), comm.rank() - 1);
    }
    return absl::OkStatus();
  }));
}

// A pipeline's way to send: nobody receives until all have sent.
TEST_P(CommunicatorConformance, SendOfMuchNeverWaitsForTheReceiver) {
  EXPECT_OK(Run([&](Communicator& comm) {
    constexpr int64_t kBytes = 1 << 20;
    const int next = (comm.rank() + 1) % size();
    const int last = (comm.rank() + size() - 1) % size();
    for (int64_t tag = 0; tag < 4; ++tag) {
      std::vector<std::byte> data = BytesOf(comm.rank(), kBytes + tag);
      SS_RETURN_IF_ERROR(comm.Send(next, tag, data));
      std::ranges::fill(data, std::byte{0});
    }
    SS_RETURN_IF_ERROR(comm.Barrier());
    for (int64_t tag = 3; tag >= 0; --tag) {
      std::vector<std::byte> data(kBytes + tag);
      SS_RETURN_IF_ERROR(comm.Recv(last, tag, data));
      EXPECT_TRUE(data == BytesOf(last, kBytes + tag)) << tag;
    }
    return absl::OkStatus();
  }));
}

// What nobody receives must not reach the next run.
TEST_P(CommunicatorConformance, MessagesEndWithTheirRun) {
  for (const int64_t count : {3, 100000}) {
    EXPECT_OK(Run([&](Communicator& comm) {
      return comm.Send((comm.rank() + 1) % size(), 0,
                       BytesOf(comm.rank(), count));
    }));
    EXPECT_OK(Run([&](Communicator& comm) {
      SS_RETURN_IF_ERROR(comm.Send((comm.rank() + 1) % size(), 0,
                                   BytesOf(comm.rank() + 70, count)));
      const int last = (comm.rank() + size() - 1) % size();
      std::vector<std::byte> data(count);
      SS_RETURN_IF_ERROR(comm.Recv(last, 0, data));
      EXPECT_TRUE(data == BytesOf(last + 70, count));
      return absl::OkStatus();
    }));
  }
}

// A save waits for the others beside training.
TEST_P(CommunicatorConformance, TwoThreadsOfARankWaitInTwoGroups) {
  EXPECT_OK(Run([&](Communicator& world) {
    SS_ASSIGN_OR_RETURN(auto files, world.Split(0, world.rank(), "files"));
    const auto meet = [](Communicator& comm) {
      std::vector<float> x(2000);
      for (int i = 0; i < 60; ++i) {
        SS_RETURN_IF_ERROR(comm.TreeAllReduceInPlace(x, 1));
        SS_RETURN_IF_ERROR(comm.Barrier());
      }
      return absl::OkStatus();
    };
    auto beside = std::async(std::launch::async, meet, std::ref(*files));
    SS_RETURN_IF_ERROR(meet(world));
    return beside.get();
  }));
}

}  // namespace
}  // namespace shardshift::trainer
