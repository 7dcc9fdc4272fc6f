// SPDX-License-Identifier: Apache-2.0
#include "kernels/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/random.h"

namespace shardshift::kernels {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kRows = 5;
constexpr int64_t kExperts = 6;
constexpr int64_t kTopk = 3;
constexpr int64_t kWidth = 37;

std::vector<float> Normals(const char* name, int64_t count) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = Normal(RandomKey(7, name), i);
  }
  return values;
}

struct Routed {
  std::vector<int32_t> chosen;
  std::vector<float> weights;
};

Routed RouteOf(const std::vector<float>& logits, int64_t rows, int64_t experts,
               int64_t topk, bool over_all) {
  Routed routed = {std::vector<int32_t>(rows * topk),
                   std::vector<float>(rows * topk)};
  Route({.logits = logits.data(),
         .rows = rows,
         .experts = experts,
         .topk = topk,
         .over_all = over_all,
         .chosen = routed.chosen.data(),
         .weights = routed.weights.data()});
  return routed;
}

// The example of parallel-layout.md 6.3.
TEST(Route, TakesTheLargestAndWeighsThem) {
  const std::vector<float> logits = {2, 1, 0, 0, 0, 2, 1, 0,
                                     1, 0, 2, 0, 2, 0, 0, 1};
  const Routed routed = RouteOf(logits, 4, 4, 2, /*over_all=*/false);
  EXPECT_THAT(routed.chosen, ElementsAre(0, 1, 1, 2, 2, 0, 0, 3));
  for (int64_t row = 0; row < 4; ++row) {
    EXPECT_NEAR(routed.weights[2 * row], 0.731059, 1e-6);
    EXPECT_NEAR(routed.weights[2 * row + 1], 0.268941, 1e-6);
  }
  const double sum = std::exp(2) + std::exp(1) + 2;
  EXPECT_NEAR(RouteOf(logits, 4, 4, 2, /*over_all=*/true).weights[0],
              std::exp(2) / sum, 1e-7);
}

TEST(Route, TiesGoToTheLowerExpert) {
  EXPECT_THAT(RouteOf({1, 3, 3, 1}, 1, 4, 3, false).chosen,
              ElementsAre(1, 2, 0));
}

TEST(Route, StaysWithinTheExpertsWhateverTheLogits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& logits : std::vector<std::vector<float>>{
           {nan, nan, nan}, {1, nan, 2}, {-inf, -inf, -inf}, {inf, 1, inf}}) {
    std::vector<int32_t> chosen = RouteOf(logits, 1, 3, 3, false).chosen;
    std::ranges::sort(chosen);
    EXPECT_THAT(chosen, ElementsAre(0, 1, 2));
  }
}

TEST(Route, FarApartLogitsGiveOneAndZero) {
  const Routed routed = RouteOf({-3e38F, 3e38F}, 1, 2, 2, false);
  EXPECT_THAT(routed.weights, ElementsAre(1.0F, 0.0F));
}

// What RouteBackward is the gradient of, in double.
double Objective(const std::vector<double>& logits, const Routed& routed,
                 const std::vector<float>& dweights, bool over_all,
                 double z_loss, const std::vector<double>& load) {
  double total = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    const double* l = &logits[r * kExperts];
    double sum = 0;
    for (int64_t e = 0; e < kExperts; ++e) sum += std::exp(l[e]);
    for (int64_t e = 0; e < kExperts; ++e) {
      total += load[e] * std::exp(l[e]) / sum;
    }
    total += z_loss * std::log(sum) * std::log(sum);
    const int32_t* chosen = &routed.chosen[r * kTopk];
    double of_chosen = 0;
    for (int64_t j = 0; j < kTopk; ++j) of_chosen += std::exp(l[chosen[j]]);
    for (int64_t j = 0; j < kTopk; ++j) {
      total += dweights[r * kTopk + j] * std::exp(l[chosen[j]]) /
               (over_all ? sum : of_chosen);
    }
  }
  return total;
}

class RouteBackwardTest : public ::testing::TestWithParam<bool> {};

TEST_P(RouteBackwardTest, IsTheGradientOfWeightsLoadAndZLoss) {
  const bool over_all = GetParam();
  const std::vector<float> logits = Normals("logits", kRows * kExperts);
  const std::vector<float> dweights = Normals("dweights", kRows * kTopk);
  const Routed routed = RouteOf(logits, kRows, kExperts, kTopk, over_all);
  std::vector<double> load(kExperts);
  std::iota(load.begin(), load.end(), -2.0);
  for (const double z_loss : {0.0, 0.3}) {
    for (const bool has_load : {false, true}) {
      std::vector<float> dlogits(logits.size());
      RouteBackward({.logits = logits.data(),
                     .rows = kRows,
                     .experts = kExperts,
                     .topk = kTopk,
                     .over_all = over_all,
                     .chosen = routed.chosen.data(),
                     .dweights = dweights.data(),
                     .z_loss = z_loss,
                     .load = has_load ? load.data() : nullptr,
                     .dlogits = dlogits.data()});
      const std::vector<double> terms =
          has_load ? load : std::vector<double>(kExperts, 0.0);
      for (size_t i = 0; i < logits.size(); ++i) {
        constexpr double kStep = 1e-5;
        std::vector<double> moved(logits.begin(), logits.end());
        moved[i] += kStep;
        const double above =
            Objective(moved, routed, dweights, over_all, z_loss, terms);
        moved[i] -= 2 * kStep;
        const double below =
            Objective(moved, routed, dweights, over_all, z_loss, terms);
        EXPECT_NEAR(dlogits[i], (above - below) / (2 * kStep), 1e-6) << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OverAll, RouteBackwardTest, ::testing::Bool());

TEST(Combine, AddsInTheOrderOfTheSlots) {
  const std::vector<float> rows = Normals("rows", kTopk * kWidth);
  const std::vector<float> weights = {0.5F, 0.3F, 0.2F};
  const std::vector<const float*> outputs = {&rows[kWidth], rows.data(),
                                             &rows[2 * kWidth]};
  const std::vector<float> before = Normals("before", kWidth);
  std::vector<float> y = before;
  Combine({.outputs = outputs.data(),
           .weights = weights.data(),
           .rows = 1,
           .topk = kTopk,
           .width = kWidth,
           .y = y.data()});
  for (int64_t i = 0; i < kWidth; ++i) {
    float expected = before[i];
    for (int64_t j = 0; j < kTopk; ++j) {
      expected = std::fmaf(weights[j], outputs[j][i], expected);
    }
    EXPECT_EQ(y[i], expected);
  }
}

TEST(CombineBackward, GivesWeightsAndOutputsTheirGradients) {
  const std::vector<float> rows = Normals("rows", kTopk * kWidth);
  const std::vector<float> dy = Normals("dy", kWidth);
  const std::vector<float> weights = {0.5F, 0.3F, 0.2F};
  std::vector<const float*> outputs;
  std::vector<float> doutputs(rows.size());
  std::vector<float*> to;
  for (int64_t j = 0; j < kTopk; ++j) {
    outputs.push_back(&rows[j * kWidth]);
    to.push_back(&doutputs[j * kWidth]);
  }
  std::vector<float> dweights(kTopk);
  CombineBackward({.dy = dy.data(),
                   .outputs = outputs.data(),
                   .weights = weights.data(),
                   .rows = 1,
                   .topk = kTopk,
                   .width = kWidth,
                   .doutputs = to.data(),
                   .dweights = dweights.data()});
  for (int64_t j = 0; j < kTopk; ++j) {
    double dot = 0;
    for (int64_t i = 0; i < kWidth; ++i) {
      dot += static_cast<double>(outputs[j][i]) * dy[i];
      EXPECT_EQ(to[j][i], weights[j] * dy[i]);
    }
    EXPECT_NEAR(dweights[j], dot, 1e-5);
  }
}

TEST(Gate, ScalesARowByItsSigmoid) {
  const std::vector<float> x = Normals("x", 2 * kWidth);
  const std::vector<float> gate = {0.7F, -90.0F};
  std::vector<float> y(x.size());
  Gate({.x = x.data(),
        .gate = gate.data(),
        .rows = 2,
        .width = kWidth,
        .y = y.data()});
  for (int64_t i = 0; i < kWidth; ++i) {
    EXPECT_NEAR(y[i], x[i] / (1 + std::exp(-0.7)), 1e-6);
    EXPECT_NEAR(y[kWidth + i], 0, 1e-30);
  }
}

TEST(GateBackward, IsTheGradient) {
  const std::vector<float> x = Normals("x", kWidth);
  const std::vector<float> dy = Normals("dy", kWidth);
  const float gate = 0.7F;
  std::vector<float> dx(kWidth);
  float dgate = 0;
  GateBackward({.dy = dy.data(),
                .x = x.data(),
                .gate = &gate,
                .rows = 1,
                .width = kWidth,
                .dx = dx.data(),
                .dgate = &dgate});
  const double open = 1 / (1 + std::exp(-static_cast<double>(gate)));
  double dot = 0;
  for (int64_t i = 0; i < kWidth; ++i) {
    dot += static_cast<double>(x[i]) * dy[i];
    EXPECT_NEAR(dx[i], open * dy[i], 1e-6);
  }
  EXPECT_NEAR(dgate, dot * open * (1 - open), 1e-5);
}

}  // namespace
}  // namespace shardshift::kernels
