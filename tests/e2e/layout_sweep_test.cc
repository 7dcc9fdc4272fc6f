// The bits of a run are the same on every layout.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/testutil/status_matchers.h"
#include "tests/trainer/tiny_model.h"

namespace shardshift::trainer {
namespace {

// A sanitizer takes fifty times as long, and finds what it finds at once.
#ifdef SHARDSHIFT_SANITIZED
constexpr int64_t kIterations = 3;
#else
constexpr int64_t kIterations = 20;
#endif
constexpr int64_t kFew = 3;

using Log = std::vector<std::string>;

// Micro-batches of 8 are fewer than most stages.
class LayoutSweep
    : public ::testing::TestWithParam<std::tuple<TinyFamily, int64_t>> {};

TEST_P(LayoutSweep, HasTheSameLossesAndNormsOnAllLayouts) {
  const auto& [family, micro_batch_size] = GetParam();
  const int64_t iterations = micro_batch_size == 1 ? kIterations : kFew;
  ASSERT_OK_AND_ASSIGN(const Log expected,
                       TrainAndLog(MockRun(family.config, {}, iterations)));
  ASSERT_EQ(expected.size(), iterations);
  for (const reshard::Layout& layout : TinyLayouts()) {
    if (family.config.global_batch_size % (micro_batch_size * layout.data) !=
        0) {
      continue;
    }
    TrainOptions run = MockRun(family.config, layout, iterations);
    run.micro_batch_size = micro_batch_size;
    ASSERT_OK_AND_ASSIGN(const Log log, TrainAndLog(run));
    EXPECT_EQ(log, expected) << NameOf(layout);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, LayoutSweep,
                         ::testing::Combine(::testing::ValuesIn(TinyFamilies()),
                                            ::testing::Values(1, 2, 8)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "MicroBatch" +
                                  std::to_string(std::get<1>(test.param));
                         });

// Controls: were these equal too, equality above would mean nothing.
TEST(LayoutSweepControl, OtherGranularitiesGiveOtherBits) {
  const RunConfig config = TinyGpt();
  ASSERT_OK_AND_ASSIGN(const Log log, TrainAndLog(MockRun(config, {}, 5)));
  // Groups of four: a group of two adds as the lowest level of the tree does.
  RunConfig other = config;
  other.numerics.data_granularity = 4;
  ASSERT_OK_AND_ASSIGN(const Log other_data,
                       TrainAndLog(MockRun(other, {}, 5)));
  EXPECT_NE(other_data, log);
  other = config;
  other.numerics.tensor_granularity = 4;
  ASSERT_OK_AND_ASSIGN(const Log other_tensor,
                       TrainAndLog(MockRun(other, {}, 5)));
  EXPECT_NE(other_tensor, log);
}

TEST(LayoutSweepControl, EveryIterationHasOtherBits) {
  for (const TinyFamily& family : TinyFamilies()) {
    ASSERT_OK_AND_ASSIGN(const Log log,
                         TrainAndLog(MockRun(family.config, {}, kIterations)));
    for (size_t i = 0; i < log.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        EXPECT_NE(log[i].substr(log[i].find(' ')),
                  log[j].substr(log[j].find(' ')));
      }
    }
  }
}

}  // namespace
}  // namespace shardshift::trainer
