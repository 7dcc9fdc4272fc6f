// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/slot_pipeline.h"

#include <atomic>
#include <vector>

#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

TEST(SlotPipeline, EveryStageSeesEverySlotInOrder) {
  std::vector<int64_t> content(3);
  std::vector<int64_t> first;
  std::vector<int64_t> second;
  SlotPipeline pipeline(3, {[&](int64_t slot) {
                              first.push_back(content[slot]);
                              return absl::OkStatus();
                            },
                            [&](int64_t slot) {
                              second.push_back(content[slot]);
                              return absl::OkStatus();
                            }});
  std::vector<int64_t> expected;
  for (int64_t i = 0; i < 1000; ++i) {
    ASSERT_OK_AND_ASSIGN(const int64_t slot, pipeline.Take());
    content[slot] = i;
    expected.push_back(i);
    pipeline.Push(slot);
  }
  ASSERT_OK(pipeline.Finish());
  EXPECT_EQ(first, expected);
  EXPECT_EQ(second, expected);
}

TEST(SlotPipeline, AfterAnErrorNothingMoreIsBegun) {
  std::atomic<int> begun = 0;
  SlotPipeline pipeline(2, {[&](int64_t) {
                          return ++begun == 3 ? absl::DataLossError("third")
                                              : absl::OkStatus();
                        }});
  absl::Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) {
    const absl::StatusOr<int64_t> slot = pipeline.Take();
    status = slot.status();
    if (status.ok()) pipeline.Push(*slot);
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                               ::testing::HasSubstr("third")));
  EXPECT_THAT(pipeline.Finish(), StatusIs(absl::StatusCode::kDataLoss,
                                          ::testing::HasSubstr("third")));
  EXPECT_EQ(begun, 3);
}

}  // namespace
}  // namespace shardshift::reshard
