// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/layer_stack.h"

#include <gmock/gmock.h>

namespace shardshift::trainer {
namespace {

using ::testing::ElementsAre;

std::vector<LayerGroup> Groups(int64_t num_layers, RecomputeMethod method,
                               int64_t size) {
  return GroupLayers(num_layers,
                     {.recompute = {.granularity = RecomputeGranularity::kFull,
                                    .method = method,
                                    .num_layers = size}});
}

TEST(GroupLayers, KeepsEachLayerUnlessWholeLayersAreRecomputed) {
  const auto kept =
      ElementsAre(LayerGroup{0, 1, false}, LayerGroup{1, 2, false});
  EXPECT_THAT(GroupLayers(2, {}), kept);
  EXPECT_THAT(
      GroupLayers(
          2, {.recompute = {.granularity = RecomputeGranularity::kSelective}}),
      kept);
}

TEST(GroupLayers, OfAUniformStackCoverAllLayers) {
  EXPECT_THAT(Groups(5, RecomputeMethod::kUniform, 2),
              ElementsAre(LayerGroup{0, 2, true}, LayerGroup{2, 4, true},
                          LayerGroup{4, 5, true}));
  EXPECT_THAT(Groups(2, RecomputeMethod::kUniform, 9),
              ElementsAre(LayerGroup{0, 2, true}));
}

TEST(GroupLayers, OfABlockAreItsFirstLayersOneByOne) {
  EXPECT_THAT(Groups(3, RecomputeMethod::kBlock, 2),
              ElementsAre(LayerGroup{0, 1, true}, LayerGroup{1, 2, true},
                          LayerGroup{2, 3, false}));
  EXPECT_THAT(Groups(1, RecomputeMethod::kBlock, 4),
              ElementsAre(LayerGroup{0, 1, true}));
}

TEST(GroupLayers, OfNoLayersAreNone) {
  EXPECT_TRUE(GroupLayers(0, {}).empty());
}

}  // namespace
}  // namespace shardshift::trainer
