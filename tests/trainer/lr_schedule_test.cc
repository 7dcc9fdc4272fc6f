// SPDX-License-Identifier: Apache-2.0
#include "trainer/lr_schedule.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "tests/testutil/status_matchers.h"

namespace shardshift::trainer {
namespace {

using ::testing::HasSubstr;

// Ten iterations of warm-up and a hundred in all, eight samples each.
LrSchedule Example(LrDecayStyle style) {
  return {.style = style,
          .max_lr = 1,
          .min_lr = 0.1,
          .init_lr = 0,
          .warmup_samples = 80,
          .decay_samples = 800};
}

TEST(LearningRate, AgreesWithMegatronsSchedule) {
  struct Row {
    int64_t samples;
    double linear, cosine, inverse_square_root;
  };
  for (const Row& row :
       {Row{0, 0, 0, 0}, Row{40, .5, .5, .5}, Row{80, 1, 1, 1},
        Row{88, .99, .999726, .953463}, Row{440, .55, .55, .426401},
        Row{720, .2, .127138, .333333}, Row{800, .1, .1, .316228},
        Row{808, .1, .1, .1}}) {
    const auto rate = [&](LrDecayStyle style) {
      return LearningRate(Example(style), row.samples);
    };
    EXPECT_NEAR(rate(LrDecayStyle::kLinear), row.linear, 5e-7);
    EXPECT_NEAR(rate(LrDecayStyle::kCosine), row.cosine, 5e-7);
    EXPECT_NEAR(rate(LrDecayStyle::kInverseSquareRoot), row.inverse_square_root,
                5e-7);
    EXPECT_NEAR(rate(LrDecayStyle::kConstant),
                std::min(1.0, static_cast<double>(row.samples) / 80), 1e-15);
  }
}

TEST(LearningRate, CosineIsTheCosine) {
  LrSchedule schedule = Example(LrDecayStyle::kCosine);
  schedule.min_lr = 0;
  schedule.warmup_samples = 0;
  schedule.decay_samples = 1000;
  for (int64_t n = 0; n <= 1000; ++n) {
    const double r = static_cast<double>(n) / 1000;
    EXPECT_NEAR(LearningRate(schedule, n),
                0.5 * (std::cos(std::numbers::pi * r) + 1), 4e-16)
        << n;
  }
  EXPECT_EQ(LearningRate(schedule, 0), 1);
  EXPECT_EQ(LearningRate(schedule, 500), 0.5);
  EXPECT_EQ(LearningRate(schedule, 1000), 0);
}

TEST(LearningRate, WithoutWarmUpBeginsAtTheTop) {
  for (const LrDecayStyle style :
       {LrDecayStyle::kConstant, LrDecayStyle::kLinear, LrDecayStyle::kCosine,
        LrDecayStyle::kInverseSquareRoot}) {
    LrSchedule schedule = Example(style);
    schedule.warmup_samples = 0;
    EXPECT_EQ(LearningRate(schedule, 0), 1) << LrDecayStyleName(style);
  }
}

TEST(Validate, RefusesWhatCannotBe) {
  const auto expect_refusal = [](LrSchedule schedule, const char* what) {
    EXPECT_THAT(Validate(schedule),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)));
  };
  const LrSchedule good = Example(LrDecayStyle::kCosine);
  EXPECT_OK(Validate(good));
  LrSchedule bad = good;
  bad.max_lr = std::numeric_limits<double>::quiet_NaN();
  expect_refusal(bad, "--lr is nan");
  bad = good;
  bad.min_lr = -1;
  expect_refusal(bad, "--min-lr is -1");
  bad = good;
  bad.min_lr = 2;
  expect_refusal(bad, "--min-lr 2 exceeds --lr 1");
  bad = good;
  bad.warmup_samples = 800;
  expect_refusal(bad, "warm-up of 800");
  bad = good;
  bad.decay_samples = 0;
  bad.warmup_samples = 0;
  expect_refusal(bad, "decay of 0");
}

TEST(LrDecayStyle, NamesAreParsed) {
  for (const LrDecayStyle style :
       {LrDecayStyle::kConstant, LrDecayStyle::kLinear, LrDecayStyle::kCosine,
        LrDecayStyle::kInverseSquareRoot}) {
    ASSERT_OK_AND_ASSIGN(const LrDecayStyle parsed,
                         ParseLrDecayStyle(LrDecayStyleName(style)));
    EXPECT_EQ(parsed, style);
  }
  EXPECT_THAT(
      ParseLrDecayStyle("step"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"step\"")));
}

}  // namespace
}  // namespace shardshift::trainer
