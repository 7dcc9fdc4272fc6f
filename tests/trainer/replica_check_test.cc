// SPDX-License-Identifier: Apache-2.0
#include "trainer/replica_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "ckpt/core/status_macros.h"
#include "reshard/layout/parameters.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/tiny_model.h"

namespace shardshift::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Changes the lowest bit of one weight, or of one master weight, on world rank
// `rank`, and compares.
absl::Status CheckAfterAFlip(const RunConfig& config,
                             const reshard::Layout& layout, int rank,
                             const std::string& parameter,
                             Precision precision = Precision::kFp32) {
  return OnEveryRank(
      config, layout,
      [&](Mesh& mesh, RankModel& model) -> absl::Status {
        Parameters& parameters = model.parameters();
        parameters.Initialize(reshard::LogicalTensors(config.model), 1, 0.1,
                              config.model.num_layers);
        SS_RETURN_IF_ERROR(model.optimizer().MastersFromWeights());
        SS_RETURN_IF_ERROR(CheckReplicas(mesh, parameters, model.optimizer()));
        if (mesh.world().rank() == rank) {
          const int64_t index = parameters.Find(parameter).value();
          float& weight =
              precision == Precision::kFp32
                  ? *parameters.data(index)
                  : *model.optimizer().StateOf(
                        {.box = {},
                         .offset = parameters.state().ranges[index].begin},
                        /*role=*/0);
          weight = std::nextafter(weight, 2.0F);
        }
        return CheckReplicas(mesh, parameters, model.optimizer());
      },
      {.sequence_parallel = layout.tensor > 1, .precision = precision});
}

auto Differs(const std::string& parameter, const std::string& axis) {
  return StatusIs(absl::StatusCode::kDataLoss,
                  AllOf(HasSubstr(parameter), HasSubstr(axis)));
}

TEST(CheckReplicas, B38NamesWhatDiffersAfterALoad) {
  const std::string proj = "layers.1.attention.proj.weight";
  EXPECT_THAT(CheckAfterAFlip(TinyGpt(), {.data = 2}, 1, proj),
              Differs(proj, "data-parallel ranks 0 and 1"));
  const std::string norm = "layers.1.mlp_norm.weight";
  EXPECT_THAT(CheckAfterAFlip(TinyGpt(), {.tensor = 2}, 1, norm),
              Differs(norm, "tensor-parallel ranks 0 and 1"));
  // Of this each tensor-parallel rank has its own part.
  EXPECT_OK(CheckAfterAFlip(TinyGpt(), {.tensor = 2}, 1, proj));
}

TEST(CheckReplicas, B53NamesTiedCopiesThatDrifted) {
  EXPECT_THAT(CheckAfterAFlip(TinyGpt(), {.pipeline = 2}, 1, "output.weight"),
              Differs("", "embedding-sharing ranks 0 and 1"));
}

TEST(CheckReplicas, ComparesMasterWeightsThatRoundToTheSame) {
  const std::string proj = "layers.1.attention.proj.weight";
  EXPECT_THAT(
      CheckAfterAFlip(TinyGpt(), {.data = 2}, 1, proj, Precision::kBf16),
      Differs(proj, "data-parallel ranks 0 and 1"));
}

TEST(CheckReplicas, ComparesExpertsAmongTheirCopies) {
  const reshard::Layout layout = {.data = 4, .expert = 2};
  const std::string expert = "layers.0.mlp.experts.0.fc1.weight";
  EXPECT_THAT(CheckAfterAFlip(TinyMixtral(), layout, 2, expert),
              Differs(expert, "expert-data-parallel ranks 0 and 1"));
}

}  // namespace
}  // namespace shardshift::trainer
