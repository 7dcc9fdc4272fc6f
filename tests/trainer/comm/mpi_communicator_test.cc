// The conformance suite on processes: to be run by mpirun, with any number.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <iostream>
#include <memory>

#include "ckpt/core/status_macros.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/comm/communicator_conformance.h"
#include "trainer/comm/mpi/mpi_world.h"

namespace shardshift::trainer {
namespace {

// The one of this process.
std::unique_ptr<MpiWorld>& World() {
  static std::unique_ptr<MpiWorld> world;
  return world;
}

CommBackend Processes() {
  return {"mpi", [](int size, absl::Duration timeout, const RankBody& body) {
            EXPECT_EQ(size, World()->size());
            return World()->Run(timeout, body);
          }};
}

INSTANTIATE_TEST_SUITE_P(Mpi, CommunicatorConformance,
                         ::testing::Combine(::testing::Values(Processes()),
                                            ::testing::Values(World()->size())),
                         [](const auto& test) {
                           return std::get<0>(test.param).name +
                                  std::to_string(std::get<1>(test.param));
                         });

TEST(MpiWorld, SharesNoMemory) {
  EXPECT_OK(World()->Run(absl::Minutes(1), [](Communicator& world) {
    EXPECT_EQ(world.rank(), World()->rank());
    EXPECT_FALSE(world.shares_memory());
    if (world.size() > 1) {
      EXPECT_THAT(
          world.OnFirstRank(
              nullptr, [](std::span<void* const>) { return absl::OkStatus(); }),
          StatusIs(absl::StatusCode::kUnimplemented,
                   ::testing::HasSubstr("share memory")));
    }
    return absl::OkStatus();
  }));
}

// Tells of failures alone.
class FailuresOfARank : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::cerr << "rank " << World()->rank() << ": "
              << (result.file_name() == nullptr ? "" : result.file_name())
              << ":" << result.line_number() << ": " << result.message()
              << std::endl;
  }
};

}  // namespace
}  // namespace shardshift::trainer

int main(int argc, char** argv) {
  using shardshift::trainer::MpiWorld;
  auto& world = shardshift::trainer::World();
  auto joined = MpiWorld::Join();
  if (!joined.ok()) {
    std::cerr << joined.status() << std::endl;
    return 1;
  }
  world = *std::move(joined);
  ::testing::InitGoogleTest(&argc, argv);
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (world->rank() > 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new shardshift::trainer::FailuresOfARank);
  }
  const int code = RUN_ALL_TESTS();
  if (!world->missing().empty()) world->Abort(1);
  world.reset();
  return code;
}
