// Losses against the reference model, and the gradient of every logical tensor
// against central differences of its loss in double.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "ckpt/core/status_macros.h"
#include "kernels/random.h"
#include "reshard/layout/parameters.h"
#include "tests/testutil/reference_model.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/logical_state.h"
#include "tests/trainer/tiny_model.h"

namespace shardshift::trainer {
namespace {

RunConfig Smaller(RunConfig config) {
  config.model.num_layers = 2;
  config.seq_length = 8;
  config.global_batch_size = 4;
  config.numerics = {.tensor_granularity = 8, .data_granularity = 4};
  // With these one step leaves the gradient itself in exp_avg.
  config.optimizer.beta1 = 0;
  config.optimizer.clip_grad = 0;
  // The reference has none.
  config.attention_dropout = config.hidden_dropout = 0;
  return config;
}

std::vector<TinyFamily> Families() {
  // What neither kind has: grouped queries, gates and rotation with biases,
  // and one matrix for input and output of them.
  RunConfig mixed = TinyGpt();
  mixed.model.num_query_groups = 2;
  mixed.model.position_embedding = reshard::PositionEmbedding::kRope;
  mixed.model.swiglu = true;
  std::vector<TinyFamily> families = TinyFamilies();
  families.push_back({"Mixed", mixed});
  families.push_back({"Mixtral", TinyMixtral()});
  families.push_back({"QwenMoe", TinyQwenMoe()});
  for (TinyFamily& family : families) family.config = Smaller(family.config);
  return families;
}

struct Trained {
  float loss = 0;
  LogicalValues gradients;
};

absl::StatusOr<Trained> TrainerGradients(
    const RunConfig& config, const reshard::Layout& layout,
    int64_t micro_batch_size, const ActivationOptions& activations,
    const LogicalValues& weights,
    std::optional<double> loss_scale = std::nullopt) {
  Batch batch = MockBatch(config, 0);
  batch.micro_batch_size = micro_batch_size;
  std::mutex mutex;
  Trained trained;
  SS_RETURN_IF_ERROR(OnEveryRank(
      config, layout,
      [&](Mesh& mesh, RankModel& model) -> absl::Status {
        SS_RETURN_IF_ERROR(SetState(weights, config, model, 0));
        SS_ASSIGN_OR_RETURN(
            const StepResult result,
            model.Step(ShareOf(batch, mesh), /*lr=*/0, /*step=*/1, loss_scale));
        SS_ASSIGN_OR_RETURN(LogicalValues gradients,
                            GatherState(config, mesh, model, /*role=*/1));
        const std::lock_guard lock(mutex);
        trained = {.loss = result.loss, .gradients = std::move(gradients)};
        return absl::OkStatus();
      },
      activations));
  return trained;
}

double Largest(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::abs(static_cast<double>(value)));
  }
  return largest;
}

// The slope of the reference's loss along directions in one tensor.
class Reference {
 public:
  Reference(const RunConfig& config, const LogicalValues& weights)
      : model_(config.model, config.seq_length,
               {.aux_coeff = config.moe_loss.aux_coeff,
                .of_batch = config.moe_loss.counts_whole_batch(),
                .z_coeff = config.moe_loss.z_coeff}),
        batch_(MockBatch(config, 0)) {
    for (const std::vector<float>& tensor : weights) {
      weights_.emplace_back(tensor.begin(), tensor.end());
    }
  }

  ReferenceModel::Losses Loss() const {
    return model_.MeanLoss(weights_, batch_.tokens, batch_.labels);
  }

  // `direction` has length 1. The error of the difference is about 1e-9: the
  // square of the step times a third derivative, or 1e-16 over the step.
  double Slope(int64_t tensor, const std::vector<double>& direction) {
    constexpr double kStep = 3e-5;
    const std::vector<double> at = weights_[tensor];
    const auto loss_at = [&](double step) {
      for (size_t i = 0; i < at.size(); ++i) {
        weights_[tensor][i] = at[i] + step * direction[i];
      }
      const ReferenceModel::Losses losses = Loss();
      return losses.tokens + losses.routers;
    };
    const double slope = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    weights_[tensor] = at;
    return slope;
  }

 private:
  ReferenceModel model_;
  Batch batch_;
  ReferenceModel::Tensors weights_;
};

struct Probe {
  int64_t tensor = 0;
  std::vector<double> direction;
  double slope = 0;
};

// For each tensor its largest gradient, some random elements, and a direction
// that moves all elements.
std::vector<Probe> MakeProbes(const RunConfig& config,
                              const LogicalValues& weights,
                              const LogicalValues& gradients) {
  constexpr uint64_t kRandomElements = 3;
  Reference reference(config, weights);
  std::vector<Probe> probes;
  const uint64_t key = kernels::RandomKey(9, "probe");
  uint64_t draw = 0;
  for (size_t tensor = 0; tensor < gradients.size(); ++tensor) {
    const std::vector<float>& gradient = gradients[tensor];
    const auto add = [&](std::vector<double> direction) {
      const auto index = static_cast<int64_t>(tensor);
      const double slope = reference.Slope(index, direction);
      probes.push_back({index, std::move(direction), slope});
    };
    std::vector<size_t> elements = {
        static_cast<size_t>(std::max_element(gradient.begin(), gradient.end(),
                                             [](float a, float b) {
                                               return std::abs(a) < std::abs(b);
                                             }) -
                            gradient.begin())};
    while (elements.size() <= kRandomElements) {
      elements.push_back(kernels::RandomBits(key, draw++) % gradient.size());
    }
    for (const size_t element : elements) {
      std::vector<double> direction(gradient.size(), 0.0);
      direction[element] = 1;
      add(std::move(direction));
    }
    const double step = 1 / std::sqrt(static_cast<double>(gradient.size()));
    std::vector<double> direction(gradient.size());
    for (double& value : direction) {
      value = kernels::RandomBits(key, draw++) % 2 == 0 ? step : -step;
    }
    add(std::move(direction));
  }
  return probes;
}

// Some 1000 roundings lie on the way from a weight to the loss and back:
// products over 8 to 64 terms, eight a layer and direction, norms, softmaxes.
// Their errors add up like a random walk, to about 30; this allows six times
// that.
constexpr double kRoundings = 200;
constexpr double kRoundingUnit = 0x1p-24;
constexpr double kTolerance = kRoundings * kRoundingUnit;

// `tolerance` is relative to the largest element of a gradient.
void ExpectGradients(const RunConfig& config, const LogicalValues& gradients,
                     const std::vector<Probe>& probes, double tolerance) {
  const std::vector<reshard::LogicalTensor> tensors =
      reshard::LogicalTensors(config.model);
  const auto scale_of = [&](int64_t tensor) {
    // A key bias shifts all scores of a query alike: what is left of its
    // gradient is the rounding of terms as large as the query bias' gradient.
    const std::string& name = tensors[tensor].name;
    if (!absl::EndsWith(name, "attention.k.bias")) {
      return Largest(gradients[tensor]);
    }
    const std::string query = absl::StrReplaceAll(name, {{"k.bias", "q.bias"}});
    const auto it = std::find_if(
        tensors.begin(), tensors.end(),
        [&](const reshard::LogicalTensor& t) { return t.name == query; });
    return Largest(gradients[it - tensors.begin()]);
  };
  for (const Probe& probe : probes) {
    double slope = 0;
    double norm1 = 0;
    for (size_t i = 0; i < probe.direction.size(); ++i) {
      slope += probe.direction[i] * gradients[probe.tensor][i];
      norm1 += std::abs(probe.direction[i]);
    }
    EXPECT_NEAR(slope, probe.slope, tolerance * norm1 * scale_of(probe.tensor))
        << tensors[probe.tensor].name << ", over "
        << std::count_if(probe.direction.begin(), probe.direction.end(),
                         [](double d) { return d != 0; })
        << " elements";
  }
}

class GradientTest : public ::testing::TestWithParam<TinyFamily> {};

TEST_P(GradientTest, IsThatOfTheReferenceOnEveryLayout) {
  const RunConfig& config = GetParam().config;
  ASSERT_OK_AND_ASSIGN(const Trained one_rank,
                       TrainerGradients(config, {}, /*micro_batch_size=*/1, {},
                                        RandomWeights(config.model)));
  const LogicalValues weights = RandomWeights(config.model);
  const std::vector<Probe> probes =
      MakeProbes(config, weights, one_rank.gradients);
  const double loss = Reference(config, weights).Loss().tokens;
  std::vector<reshard::Layout> layouts = {
      {},
      {.tensor = 2, .pipeline = 2},
      {.tensor = 4},
      {.tensor = 2, .data = 2, .distributed_optimizer = true}};
  if (config.model.has_experts()) {
    layouts.push_back({.data = 2, .expert_tensor = 2});
    layouts.push_back({.tensor = 2, .data = 2, .expert = 2});
  }
  for (const reshard::Layout& layout : layouts) {
    for (const bool sequence_parallel : {false, true}) {
      if (sequence_parallel && layout.tensor == 1) continue;
      if (!sequence_parallel && layout.tensor > 1 &&
          config.model.has_experts()) {
        continue;
      }
      SCOPED_TRACE(absl::StrCat(reshard::ToString(layout),
                                " sequence parallel ", sequence_parallel));
      ASSERT_OK_AND_ASSIGN(
          const Trained trained,
          TrainerGradients(config, layout, /*micro_batch_size=*/2,
                           {.sequence_parallel = sequence_parallel},
                           RandomWeights(config.model)));
      EXPECT_NEAR(trained.loss, loss, kTolerance * loss);
      ExpectGradients(config, trained.gradients, probes, kTolerance);
      EXPECT_TRUE(trained.gradients == one_rank.gradients);
    }
  }
}

// The nearest weights of a precision.
LogicalValues Rounded(Precision precision, LogicalValues weights) {
  for (std::vector<float>& tensor : weights) {
    RoundTo(precision, kernels::KernelsFor(kernels::Isa::kScalar),
            tensor.data(), std::ssize(tensor));
  }
  return weights;
}

// What these have beyond the tests above is arithmetic, which a sanitizer makes
// slow and learns nothing from.
#ifndef SHARDSHIFT_SANITIZED

// In 16 bits some 70 roundings lie on the way, which count as the thousand
// above do: they add up to about 9, and this allows six times that.
TEST_P(GradientTest, In16BitsIsThatOfTheReferenceWithinItsRoundings) {
  constexpr double kRoundingsIn16Bits = 54;
  const RunConfig& config = GetParam().config;
  if (config.model.has_experts()) {
    GTEST_SKIP() << "with other roundings tokens go to other experts";
  }
  struct Case {
    Precision precision;
    double unit;
    std::optional<double> loss_scale;
  };
  for (const auto& [precision, unit, loss_scale] :
       {Case{Precision::kBf16, 0x1p-9, std::nullopt},
        Case{Precision::kFp16, 0x1p-12, 0x1p14}}) {
    SCOPED_TRACE(Name(precision));
    const LogicalValues weights =
        Rounded(precision, RandomWeights(config.model));
    ASSERT_OK_AND_ASSIGN(
        const Trained trained,
        TrainerGradients(config, {.tensor = 2}, 1, {.precision = precision},
                         weights, loss_scale));
    const double loss = Reference(config, weights).Loss().tokens;
    EXPECT_NEAR(trained.loss, loss, kRoundingsIn16Bits * unit * loss);
    ExpectGradients(config, trained.gradients,
                    MakeProbes(config, weights, trained.gradients),
                    kRoundingsIn16Bits * unit);
  }
}

// Scales are powers of two, and nothing vanishes in fp32.
TEST_P(GradientTest, IsTheSameWithEveryLossScale) {
  const RunConfig& config = GetParam().config;
  const LogicalValues weights = RandomWeights(config.model);
  ASSERT_OK_AND_ASSIGN(const Trained plain,
                       TrainerGradients(config, {}, 1, {}, weights));
  for (const double scale : {1.0, 0x1p20}) {
    ASSERT_OK_AND_ASSIGN(const Trained scaled,
                         TrainerGradients(config, {}, 1, {}, weights, scale));
    EXPECT_EQ(scaled.loss, plain.loss);
    EXPECT_TRUE(scaled.gradients == plain.gradients) << scale;
  }
}

#endif  // SHARDSHIFT_SANITIZED

double Norm(const LogicalValues& values) {
  double sum = 0;
  for (const std::vector<float>& tensor : values) {
    for (const float value : tensor) sum += static_cast<double>(value) * value;
  }
  return std::sqrt(sum);
}

// The reference model drops nothing, so the trainer's own loss has to do: along
// the gradient its slope is the gradient's length. A mask that differs between
// forward and backward, or is not applied, is off by far more than a hundredth.
TEST_P(GradientTest, WithDropoutIsTheSlopeAlongItself) {
  if (GetParam().config.model.has_experts()) {
    GTEST_SKIP() << "a step that long makes tokens change their experts";
  }
  constexpr double kStep = 0.01;
  for (const auto& [attention, hidden] :
       {std::pair(0.3, 0.0), std::pair(0.0, 0.3)}) {
    RunConfig config = GetParam().config;
    config.attention_dropout = attention;
    config.hidden_dropout = hidden;
    const LogicalValues weights = RandomWeights(config.model);
    ASSERT_OK_AND_ASSIGN(const Trained at,
                         TrainerGradients(config, {}, 1, {}, weights));
    const double length = Norm(at.gradients);
    double slope = 0;
    for (const double sign : {1.0, -1.0}) {
      LogicalValues moved = weights;
      for (size_t t = 0; t < moved.size(); ++t) {
        for (size_t i = 0; i < moved[t].size(); ++i) {
          moved[t][i] +=
              static_cast<float>(sign * kStep * at.gradients[t][i] / length);
        }
      }
      ASSERT_OK_AND_ASSIGN(const Trained there,
                           TrainerGradients(config, {}, 1, {}, moved));
      slope += sign * there.loss / (2 * kStep);
    }
    EXPECT_NEAR(slope, length, 0.01 * length) << attention << " " << hidden;
  }
}

// The output of equal weights has no tolerance: any difference is damage.
TEST_P(GradientTest, B129OutputsAreEqualToTheBitAndTellTwoSwappedRows) {
  const RunConfig& config = GetParam().config;
  const LogicalValues weights = RandomWeights(config.model);
  LogicalValues swapped = weights;
  const std::vector<reshard::LogicalTensor> tensors =
      reshard::LogicalTensors(config.model);
  const auto proj =
      std::find_if(tensors.begin(), tensors.end(), [](const auto& tensor) {
        return absl::EndsWith(tensor.name, "attention.proj.weight");
      });
  std::vector<float>& matrix = swapped[proj - tensors.begin()];
  std::swap_ranges(matrix.begin(), matrix.begin() + proj->shape[1],
                   matrix.begin() + proj->shape[1]);
  std::vector<float> losses;
  std::vector<float> losses_swapped;
  for (const int64_t tensor : {1, 2, 4}) {
    const ActivationOptions options = {
        .sequence_parallel = tensor == 2 || config.model.has_experts()};
    ASSERT_OK_AND_ASSIGN(
        const Trained good,
        TrainerGradients(config, {.tensor = tensor}, 1, options, weights));
    ASSERT_OK_AND_ASSIGN(
        const Trained damaged,
        TrainerGradients(config, {.tensor = tensor}, 1, options, swapped));
    losses.push_back(good.loss);
    losses_swapped.push_back(damaged.loss);
  }
  EXPECT_EQ(losses, std::vector<float>(3, losses[0]));
  EXPECT_EQ(losses_swapped, std::vector<float>(3, losses_swapped[0]));
  EXPECT_NE(losses[0], losses_swapped[0]);
}

INSTANTIATE_TEST_SUITE_P(Families, GradientTest,
                         ::testing::ValuesIn(Families()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace shardshift::trainer
