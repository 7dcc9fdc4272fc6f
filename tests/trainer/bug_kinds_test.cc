// Faults that bit users of other trainers, by the number of their kind.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/hf_config.h"
#include "reshard/layout/parameters.h"
#include "tests/testutil/reference_model.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/logical_state.h"
#include "tests/trainer/tiny_model.h"

namespace shardshift::trainer {
namespace {

TEST(BugKindsOfTraining, B07TheLaneOrderIsPartOfTheModel) {
  RunConfig config = TinyLlama();
  StoredRun run;
  run.config = config;
  const nlohmann::json halves = ToState(run)["model"];
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> log,
                       TrainAndLog(MockRun(config, {}, 2)));
  config.model.rotary_interleaved = true;
  run.config = config;
  EXPECT_NE(ToState(run)["model"], halves);
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> interleaved,
                       TrainAndLog(MockRun(config, {}, 2)));
  EXPECT_NE(interleaved, log);
  // Hugging Face's models know the other order alone.
  EXPECT_THAT(reshard::FamilyFor(config.model),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::HasSubstr("rotary_interleaved")));
}

// All weights 0, so that only biases are left: a bias that is added once a rank
// gives another loss.
TEST(BugKindsOfTraining, B08ARowBiasIsAddedOnce) {
  const RunConfig config = TinyGpt();
  LogicalValues values = RandomWeights(config.model);
  const auto tensors = reshard::LogicalTensors(config.model);
  ReferenceModel::Tensors reference;
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string& name = tensors[i].name;
    if (absl::StrContains(name, "attention.proj.weight") ||
        absl::StrContains(name, "mlp.down.weight")) {
      std::fill(values[i].begin(), values[i].end(), 0.0F);
    }
    reference.emplace_back(values[i].begin(), values[i].end());
  }
  const Batch batch = MockBatch(config, 0);
  const double expected = ReferenceModel(config.model, config.seq_length, {})
                              .MeanLoss(reference, batch.tokens, batch.labels)
                              .tokens;
  for (const int64_t tensor : {1, 2, 4}) {
    ASSERT_OK(OnEveryRank(
        config, {.tensor = tensor},
        [&](Mesh& mesh, RankModel& model) -> absl::Status {
          SS_RETURN_IF_ERROR(SetState(values, config, model, 0));
          SS_ASSIGN_OR_RETURN(const StepResult result,
                              model.Step(ShareOf(batch, mesh), 0, 1));
          EXPECT_NEAR(result.loss, expected, 1e-6 * expected) << tensor;
          return absl::OkStatus();
        }));
  }
}

TEST(BugKindsOfTraining, B42TheNormCountsEveryElementOnce) {
  for (const TinyFamily& family : TinyFamilies()) {
    RunConfig config = family.config;
    // With these one step leaves the gradient itself in exp_avg.
    config.optimizer.beta1 = 0;
    config.optimizer.clip_grad = 0;
    const LogicalValues weights = RandomWeights(config.model);
    const Batch batch = MockBatch(config, 0);
    for (const reshard::Layout& layout :
         {reshard::Layout{}, reshard::Layout{.tensor = 4},
          reshard::Layout{.tensor = 2, .pipeline = 2},
          reshard::Layout{
              .pipeline = 2, .data = 2, .distributed_optimizer = true}}) {
      ASSERT_OK(OnEveryRank(
          config, layout, [&](Mesh& mesh, RankModel& model) -> absl::Status {
            SS_RETURN_IF_ERROR(SetState(weights, config, model, 0));
            SS_ASSIGN_OR_RETURN(const StepResult result,
                                model.Step(ShareOf(batch, mesh), 0, 1));
            SS_ASSIGN_OR_RETURN(const LogicalValues gradients,
                                GatherState(config, mesh, model, 1));
            double sum = 0;
            for (const std::vector<float>& tensor : gradients) {
              for (const double value : tensor) sum += value * value;
            }
            EXPECT_NEAR(result.grad_norm, std::sqrt(sum), 1e-6 * std::sqrt(sum))
                << family.name << " " << NameOf(layout);
            return absl::OkStatus();
          }));
    }
  }
}

TEST(BugKindsOfTraining, B53TiedCopiesStayEqual) {
  for (const RunConfig& config : {TinyGpt(), TinyQwen()}) {
    ASSERT_FALSE(config.model.untie_embeddings_and_output_weights);
    ASSERT_OK(OnEveryRank(
        config, {.tensor = 2, .pipeline = 2},
        [&](Mesh& mesh, RankModel& model) -> absl::Status {
          SS_RETURN_IF_ERROR(
              SetState(RandomWeights(config.model), config, model, 0));
          const Parameters& parameters = model.parameters();
          const int64_t index =
              parameters
                  .Find(mesh.is_first_stage() ? "embedding.word.weight"
                                              : "output.weight")
                  .value();
          std::vector<float> copies(
              2 * parameters.state().parameters[index].num_elements());
          const std::span<const float> mine(parameters.data(index),
                                            copies.size() / 2);
          for (int64_t step = 1; step <= 20; ++step) {
            const Batch batch = MockBatch(config, 16 * (step - 1));
            SS_RETURN_IF_ERROR(
                model.Step(ShareOf(batch, mesh), /*lr=*/1e-2, step).status());
            SS_RETURN_IF_ERROR(mesh.pipeline().AllGather(
                std::as_bytes(mine),
                std::as_writable_bytes(std::span(copies))));
            EXPECT_EQ(std::memcmp(copies.data(), copies.data() + mine.size(),
                                  mine.size_bytes()),
                      0)
                << "step " << step;
          }
          return absl::OkStatus();
        }));
  }
}

}  // namespace
}  // namespace shardshift::trainer
