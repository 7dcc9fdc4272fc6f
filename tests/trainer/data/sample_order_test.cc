// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/sample_order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/testutil/status_matchers.h"
#include "trainer/data/token_source.h"

namespace shardshift::trainer {
namespace {

std::vector<int64_t> Epoch(const SampleOrder& order, int64_t epoch, int64_t n) {
  std::vector<int64_t> indices;
  for (int64_t k = epoch * n; k < (epoch + 1) * n; ++k) {
    EXPECT_EQ(order.At(k).epoch, epoch);
    indices.push_back(order.At(k).index);
  }
  return indices;
}

TEST(SampleOrder, SequentialRepeatsTheEpoch) {
  const SampleOrder order(DataOrder::kSequential, 1, 3);
  EXPECT_THAT(Epoch(order, 0, 3), testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(Epoch(order, 1, 3), testing::ElementsAre(0, 1, 2));
}

TEST(SampleOrder, EveryShuffledEpochHoldsEachSampleOnce) {
  for (const int64_t n : {1, 2, 3, 63, 64, 65, 1000}) {
    std::vector<int64_t> expected(n);
    std::iota(expected.begin(), expected.end(), 0);
    const SampleOrder order(DataOrder::kShuffled, 1234, n);
    for (const int64_t epoch : {0, 1, 1000000}) {
      std::vector<int64_t> indices = Epoch(order, epoch, n);
      std::ranges::sort(indices);
      EXPECT_EQ(indices, expected) << n;
    }
  }
}

TEST(SampleOrder, EpochsAndSeedsDiffer) {
  const SampleOrder order(DataOrder::kShuffled, 1, 64);
  const SampleOrder other(DataOrder::kShuffled, 2, 64);
  EXPECT_NE(Epoch(order, 0, 64), Epoch(order, 1, 64));
  EXPECT_NE(Epoch(order, 0, 64), Epoch(other, 0, 64));
  EXPECT_EQ(Epoch(order, 1, 64),
            Epoch(SampleOrder(DataOrder::kShuffled, 1, 64), 1, 64));
}

TEST(SampleOrder, WalksUnlimitedSourcesInOrder) {
  for (const DataOrder kind : {DataOrder::kShuffled, DataOrder::kSequential}) {
    const SampleOrder order(kind, 1, kUnlimitedSamples);
    EXPECT_EQ(order.At(0), (SamplePosition{0, 0}));
    EXPECT_EQ(order.At(int64_t{1} << 50),
              (SamplePosition{0, int64_t{1} << 50}));
  }
}

TEST(DataOrder, NamesAreParsed) {
  for (const DataOrder kind : {DataOrder::kShuffled, DataOrder::kSequential}) {
    ASSERT_OK_AND_ASSIGN(const DataOrder parsed,
                         ParseDataOrder(DataOrderName(kind)));
    EXPECT_EQ(parsed, kind);
  }
  EXPECT_THAT(ParseDataOrder("random"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::HasSubstr("\"random\"")));
}

}  // namespace
}  // namespace shardshift::trainer
