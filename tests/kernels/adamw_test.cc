// SPDX-License-Identifier: Apache-2.0
#include "kernels/adamw.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/math.h"
#include "tests/kernels/kernel_test.h"

namespace shardshift::kernels {
namespace {

struct State {
  std::vector<float> p, m, v, g;
};

State MakeState(int64_t count) {
  State state = {Normals("p", count), Normals("m", count), Normals("v", count),
                 Normals("g", count)};
  for (float& v : state.v) v *= v;
  return state;
}

AdamWArgs Step(State& state, int64_t begin, int64_t count) {
  return {.param = &state.p[begin],
          .exp_avg = &state.m[begin],
          .exp_avg_sq = &state.v[begin],
          .grad = &state.g[begin],
          .count = count,
          .lr = 1e-2,
          .weight_decay = 0.1,
          .bias_correction1 = 1 - Pow(0.9, 3),
          .bias_correction2 = 1 - Pow(0.999, 3),
          .grad_scale = 0.5};
}

TEST(AdamW, MatchesItsDefinitionInDouble) {
  State state = MakeState(50);
  const State old = state;
  KernelsFor(DetectIsa()).adamw(Step(state, 0, 50));
  for (int64_t i = 0; i < 50; ++i) {
    const double g = 0.5 * old.g[i];
    const double m = 0.9 * old.m[i] + 0.1 * g;
    const double v = 0.999 * old.v[i] + 0.001 * g * g;
    const double update = m / (1 - std::pow(0.9, 3)) /
                          (std::sqrt(v / (1 - std::pow(0.999, 3))) + 1e-8);
    const double p = old.p[i] - 1e-2 * (update + 0.1 * old.p[i]);
    EXPECT_NEAR(state.m[i], m, 1e-6);
    EXPECT_NEAR(state.v[i], v, 1e-6);
    EXPECT_NEAR(state.p[i], p, 1e-6);
  }
}

TEST(AdamW, HasTheSameBitsOnAllIsasAndForAnyShards) {
  for (const int64_t count : kEdgeSizes) {
    ExpectSameBitsOnAllIsas([count](const Kernels& kernels) {
      State state = MakeState(count);
      kernels.adamw(Step(state, 0, count));
      State shards = MakeState(count);
      kernels.adamw(Step(shards, 0, count / 3));
      kernels.adamw(Step(shards, count / 3, count - count / 3));
      EXPECT_EQ(Bits(shards.p), Bits(state.p));
      Append(state.m, state.p);
      Append(state.v, state.p);
      return state.p;
    });
  }
}

}  // namespace
}  // namespace shardshift::kernels
