// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/loss_scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/testutil/status_matchers.h"

namespace shardshift::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The scales of iterations that overflow ('x') or do not ('.'), and the one
// after them.
std::vector<double> ScalesOver(const LossScaling& scaling,
                               const std::string& iterations) {
  LossScale scale = StartLossScale(scaling);
  std::vector<double> scales = {scale.scale};
  for (const char iteration : iterations) {
    Adapt(scaling, iteration == 'x', scale);
    scales.push_back(scale.scale);
  }
  return scales;
}

TEST(LossScale, HalvesFromTheLastFreeOverflowOn) {
  EXPECT_THAT(ScalesOver({.initial = 64, .hysteresis = 1}, "xx"),
              ElementsAre(64, 32, 16));
  EXPECT_THAT(ScalesOver({.initial = 64, .hysteresis = 3}, "xxxx"),
              ElementsAre(64, 64, 64, 32, 16));
}

TEST(LossScale, DoublesAfterAWindowWithoutOverflow) {
  EXPECT_THAT(ScalesOver({.initial = 64, .window = 2}, "....."),
              ElementsAre(64, 64, 128, 128, 256, 256));
  // An overflow starts the window anew.
  EXPECT_THAT(ScalesOver({.initial = 64, .window = 2}, ".x.."),
              ElementsAre(64, 64, 64, 64, 128));
}

// Megatron's too: iterations without overflow give nothing back before the
// window is over.
TEST(LossScale, HysteresisIsRefilledByGrowthAlone) {
  EXPECT_THAT(ScalesOver({.initial = 64, .window = 3}, "x..x"),
              ElementsAre(64, 64, 64, 64, 32));
  EXPECT_THAT(ScalesOver({.initial = 64, .window = 3}, "x...xx"),
              ElementsAre(64, 64, 64, 64, 128, 128, 64));
}

TEST(LossScale, StopsAtItsLimits) {
  EXPECT_THAT(ScalesOver({.initial = 4, .min = 2, .hysteresis = 1}, "xxx"),
              ElementsAre(4, 2, 2, 2));
  EXPECT_THAT(ScalesOver({.initial = 0x1p64, .window = 1}, "."),
              ElementsAre(0x1p64, 0x1p64));
}

TEST(LossScale, StaysConstantOnRequest) {
  EXPECT_THAT(ScalesOver({.constant = 8, .window = 1, .hysteresis = 1}, "x.x"),
              ElementsAre(8, 8, 8, 8));
}

TEST(LossScaling, IsRefusedWithTheFlagNamed) {
  const auto refuses = [](const LossScaling& scaling, const char* flag) {
    EXPECT_THAT(Validate(scaling),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(flag)));
  };
  EXPECT_OK(Validate(LossScaling{}));
  refuses({.constant = 3}, "--loss-scale is 3");
  refuses({.constant = 0.5}, "--loss-scale is 0.5");
  refuses({.initial = 1000}, "--initial-loss-scale is 1000");
  refuses({.initial = 0x1p65}, "--initial-loss-scale");
  refuses({.min = 0}, "--min-loss-scale is 0");
  refuses({.initial = 2, .min = 4}, "less than --min-loss-scale 4");
  refuses({.window = 0}, "--loss-scale-window is 0");
  refuses({.hysteresis = 0}, "--hysteresis is 0");
}

}  // namespace
}  // namespace shardshift::trainer
