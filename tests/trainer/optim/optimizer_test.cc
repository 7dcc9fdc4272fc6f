// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/optimizer.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <mutex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "kernels/random.h"
#include "reshard/layout/parameters.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/logical_state.h"
#include "tests/trainer/tiny_model.h"

namespace shardshift::trainer {
namespace {

constexpr double kLr = 3e-3;
constexpr int64_t kStep = 5;

RunConfig Config() {
  RunConfig config = TinyGpt();
  config.optimizer.weight_decay = 0.1;
  return config;
}

// Without a step before: the state has three roles that this makes up.
std::array<LogicalValues, 3> StartState(const RunConfig& config) {
  LogicalValues weights = RandomWeights(config.model);
  std::array<LogicalValues, 3> state = {weights, weights, weights};
  const uint64_t key = kernels::RandomKey(2, "moments");
  uint64_t draw = 0;
  for (size_t tensor = 0; tensor < weights.size(); ++tensor) {
    for (size_t i = 0; i < weights[tensor].size(); ++i) {
      const float noise = 0.01F * kernels::Normal(key, draw++);
      state[1][tensor][i] = noise;
      state[2][tensor][i] = noise * noise + 1e-6F;
    }
  }
  return state;
}

struct Outcome {
  float grad_norm = 0;
  std::array<LogicalValues, 3> state;
};

// One update from StartState.
absl::StatusOr<Outcome> Update(const RunConfig& config,
                               const reshard::Layout& layout,
                               const ActivationOptions& activations = {}) {
  const std::array<LogicalValues, 3> start = StartState(config);
  const Batch batch = MockBatch(config, 0);
  std::mutex mutex;
  Outcome outcome;
  SS_RETURN_IF_ERROR(OnEveryRank(
      config, layout,
      [&](Mesh& mesh, RankModel& model) -> absl::Status {
        for (int64_t role = 0; role < 3; ++role) {
          SS_RETURN_IF_ERROR(SetState(start[role], config, model, role));
        }
        SS_ASSIGN_OR_RETURN(const StepResult result,
                            model.Step(ShareOf(batch, mesh), kLr, kStep));
        std::array<LogicalValues, 3> state;
        for (int64_t role = 0; role < 3; ++role) {
          SS_ASSIGN_OR_RETURN(state[role],
                              GatherState(config, mesh, model, role));
        }
        const std::lock_guard lock(mutex);
        outcome = {.grad_norm = result.grad_norm, .state = std::move(state)};
        return absl::OkStatus();
      },
      activations));
  return outcome;
}

// The gradients themselves: exp_avg after an update without memory or clip.
absl::StatusOr<LogicalValues> Gradients(RunConfig config) {
  config.optimizer.beta1 = 0;
  config.optimizer.clip_grad = 0;
  SS_ASSIGN_OR_RETURN(const Outcome outcome, Update(config, {}));
  return outcome.state[1];
}

double NormOf(const LogicalValues& values) {
  double sum = 0;
  for (const std::vector<float>& tensor : values) {
    for (const float value : tensor) sum += static_cast<double>(value) * value;
  }
  return std::sqrt(sum);
}

const std::vector<reshard::Layout>& SplitLayouts() {
  static const auto& layouts = *new std::vector<reshard::Layout>{
      {.data = 2},
      {.data = 2, .distributed_optimizer = true},
      {.pipeline = 2, .data = 4, .distributed_optimizer = true},
      {.tensor = 2, .pipeline = 2, .data = 2},
      {.tensor = 2, .pipeline = 2, .data = 2, .distributed_optimizer = true},
      {.tensor = 4, .data = 2, .distributed_optimizer = true},
      // Several flat buffers a rank.
      {.pipeline = 2, .data = 2, .virtual_stages = 2},
      {.pipeline = 2,
       .data = 2,
       .distributed_optimizer = true,
       .virtual_stages = 2},
      {.tensor = 2,
       .pipeline = 3,
       .distributed_optimizer = true,
       .stage_layers = {1, 0, 1, 1, 1, 0}}};
  return layouts;
}

// AdamW in double, from the gradients as the trainer has them.
void ExpectAdamW(const RunConfig& config, const LogicalValues& gradients,
                 const Outcome& outcome) {
  const OptimizerConfig& adam = config.optimizer;
  const std::array<LogicalValues, 3> start = StartState(config);
  const std::vector<reshard::LogicalTensor> tensors =
      reshard::LogicalTensors(config.model);
  const double norm = NormOf(gradients);
  const double clip =
      adam.clip_grad == 0 ? 1.0 : std::min(1.0, adam.clip_grad / (norm + 1e-6));
  for (size_t t = 0; t < tensors.size(); ++t) {
    SCOPED_TRACE(tensors[t].name);
    const double decay = tensors[t].shape.size() > 1 ? adam.weight_decay : 0;
    for (size_t i = 0; i < gradients[t].size(); ++i) {
      const double g = clip * gradients[t][i];
      const double w = start[0][t][i];
      const double old_m = adam.beta1 * start[1][t][i];
      const double new_m = (1 - adam.beta1) * g;
      const double m = old_m + new_m;
      const double v = adam.beta2 * start[2][t][i] + (1 - adam.beta2) * g * g;
      const double root = std::sqrt(v / (1 - std::pow(adam.beta2, kStep)));
      const double rate =
          kLr / (1 - std::pow(adam.beta1, kStep)) / (root + adam.eps);
      // A few roundings to float, relative to the terms of each sum.
      constexpr double kFew = 8 * 0x1p-24;
      const double m_terms = std::abs(old_m) + std::abs(new_m);
      ASSERT_NEAR(outcome.state[1][t][i], m, kFew * m_terms);
      ASSERT_NEAR(outcome.state[2][t][i], v, kFew * v);
      ASSERT_NEAR(outcome.state[0][t][i], w - rate * m - kLr * decay * w,
                  kFew * (std::abs(w) + rate * m_terms));
    }
  }
}

TEST(Optimizer, IsAdamWWithActiveAndInactiveClip) {
  RunConfig config = Config();
  ASSERT_OK_AND_ASSIGN(const LogicalValues gradients, Gradients(config));
  const double norm = NormOf(gradients);
  for (const double clip : {0.0, 2 * norm, norm / 3}) {
    SCOPED_TRACE(clip);
    config.optimizer.clip_grad = clip;
    ASSERT_OK_AND_ASSIGN(const Outcome outcome, Update(config, {}));
    ExpectAdamW(config, gradients, outcome);
  }
}

TEST(Optimizer, GivesTheSameBitsWithAndWithoutShards) {
  for (RunConfig config : {Config(), TinyLlama()}) {
    config.optimizer.clip_grad = 0.1;
    ASSERT_OK_AND_ASSIGN(const Outcome one_rank, Update(config, {}));
    ASSERT_GT(one_rank.grad_norm, config.optimizer.clip_grad);
    for (const reshard::Layout& layout : SplitLayouts()) {
      SCOPED_TRACE(reshard::ToString(layout));
      ASSERT_OK_AND_ASSIGN(const Outcome outcome, Update(config, layout));
      EXPECT_EQ(outcome.grad_norm, one_rank.grad_norm);
      EXPECT_TRUE(outcome.state == one_rank.state);
    }
  }
}

// Replicated vectors are on every tensor-parallel rank, a tied embedding on two
// stages; with sequence parallelism a rank's sums are of its positions only.
TEST(Optimizer, B42CountsEachLogicalElementOnceInTheNorm) {
  const RunConfig config = Config();
  ASSERT_OK_AND_ASSIGN(const LogicalValues gradients, Gradients(config));
  const auto norm = static_cast<float>(NormOf(gradients));
  ASSERT_OK_AND_ASSIGN(const Outcome one_rank, Update(config, {}));
  EXPECT_FLOAT_EQ(one_rank.grad_norm, norm);
  for (const reshard::Layout& layout : SplitLayouts()) {
    for (const bool sequence_parallel : {false, true}) {
      SCOPED_TRACE(absl::StrCat(reshard::ToString(layout),
                                " sequence parallel ", sequence_parallel));
      ASSERT_OK_AND_ASSIGN(
          const Outcome outcome,
          Update(config, layout, {.sequence_parallel = sequence_parallel}));
      EXPECT_EQ(outcome.grad_norm, one_rank.grad_norm);
      EXPECT_TRUE(outcome.state == one_rank.state);
    }
  }
}

TEST(Optimizer, DecaysMatricesOnly) {
  RunConfig config = Config();
  config.optimizer.clip_grad = 1e-30;  // no gradient is left
  ASSERT_OK_AND_ASSIGN(const Outcome decayed, Update(config, {}));
  config.optimizer.weight_decay = 0;
  ASSERT_OK_AND_ASSIGN(const Outcome kept, Update(config, {}));
  const std::vector<reshard::LogicalTensor> tensors =
      reshard::LogicalTensors(config.model);
  for (size_t t = 0; t < tensors.size(); ++t) {
    EXPECT_EQ(decayed.state[0][t] == kept.state[0][t],
              tensors[t].shape.size() == 1)
        << tensors[t].name;
  }
}

}  // namespace
}  // namespace shardshift::trainer
