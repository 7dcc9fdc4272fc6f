// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/thread_communicator.h"

#include <cfenv>
#include <limits>

#include "ckpt/core/status_macros.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/comm/communicator_conformance.h"

namespace shardshift::trainer {
namespace {

const CommBackend kThreads = {
    "threads", [](int size, absl::Duration timeout, const RankBody& body) {
      return RunRanks(size, {.timeout = timeout}, body);
    }};

INSTANTIATE_TEST_SUITE_P(Threads, CommunicatorConformance,
                         ::testing::Combine(::testing::Values(kThreads),
                                            ::testing::Range(1, 9)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name +
                                  std::to_string(std::get<1>(test.param));
                         });

TEST(RunRanks, Runs256RanksOnFewCores) {
  EXPECT_OK(RunRanks(256, {}, [](Communicator& world) {
    SS_ASSIGN_OR_RETURN(auto part,
                        world.Split(world.rank() % 16, world.rank()));
    std::vector<int64_t> x(300, world.rank());
    for (int i = 0; i < 5; ++i) SS_RETURN_IF_ERROR(part->Barrier());
    SS_RETURN_IF_ERROR(part->AllReduceSum(x));
    EXPECT_EQ(x[299], 16 * (world.rank() % 16) + 16 * (15 * 16 / 2));
    SS_RETURN_IF_ERROR(world.AllReduceSum(x));
    EXPECT_EQ(x[0], 16 * 255 * 256 / 2);
    return absl::OkStatus();
  }));
}

TEST(RunRanks, RefusesAWorldWithoutRanks) {
  EXPECT_THAT(
      RunRanks(0, {}, [](Communicator&) { return absl::OkStatus(); }),
      StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("0")));
}

TEST(RunRanks, GivesAllRanksTheDefaultFloatingPointEnvironment) {
  std::fesetround(FE_UPWARD);
  EXPECT_OK(RunRanks(3, {}, [](Communicator&) {
    volatile float tiny = std::numeric_limits<float>::min();
    EXPECT_EQ(std::fegetround(), FE_TONEAREST);
    EXPECT_GT(tiny / 2, 0.0f);
    return absl::OkStatus();
  }));
  std::fesetround(FE_TONEAREST);
}

}  // namespace
}  // namespace shardshift::trainer
