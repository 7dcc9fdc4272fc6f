// SPDX-License-Identifier: Apache-2.0
#include "trainer/pipeline/stage.h"

#include <gmock/gmock.h>

#include <optional>
#include <vector>

#include "ckpt/core/status_macros.h"
#include "reshard/layout/parameters.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/tiny_model.h"

namespace shardshift::trainer {
namespace {

using ::testing::ElementsAre;

// Buckets that a rank has reduced each time a chunk was done, while a batch
// ran.
absl::StatusOr<std::vector<int64_t>> ReducedByChunk(const RunConfig& config,
                                                    Mesh& mesh,
                                                    RankModel& model) {
  model.parameters().Initialize(reshard::LogicalTensors(config.model),
                                config.seed, config.init_method_std,
                                config.model.num_layers);
  Stage stage(model.context(), std::nullopt);
  const Batch batch = ShareOf(MockBatch(config, 0), mesh);
  std::vector<double> losses(batch.num_samples);
  std::vector<int64_t> reduced;
  mesh.data().ResetStats();
  SS_RETURN_IF_ERROR(stage.RunBatch(batch, losses, [&]() -> absl::Status {
    SS_RETURN_IF_ERROR(
        model.optimizer().ReduceComplete(model.context().all_gradients));
    reduced.push_back(
        mesh.data().stats().of(CommKind::kTreeReduceScatter).calls);
    return absl::OkStatus();
  }));
  return reduced;
}

// Each chunk has a bucket, a tied embedding its own: the first chunk of the
// model has two and so has the last.
TEST(Stage, LetsBucketsBeReducedBeforeItsLastBackward) {
  const RunConfig config = TinyGpt();
  EXPECT_OK(OnEveryRank(config,
                        {.pipeline = 2,
                         .data = 2,
                         .distributed_optimizer = true,
                         .virtual_stages = 2},
                        [&](Mesh& mesh, RankModel& model) -> absl::Status {
                          SS_ASSIGN_OR_RETURN(
                              const std::vector<int64_t> reduced,
                              ReducedByChunk(config, mesh, model));
                          if (mesh.is_first_stage()) {
                            EXPECT_THAT(reduced, ElementsAre(1, 3));
                          } else {
                            EXPECT_THAT(reduced, ElementsAre(2, 3));
                          }
                          return absl::OkStatus();
                        }));
}

}  // namespace
}  // namespace shardshift::trainer
