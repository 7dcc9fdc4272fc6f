// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/stages.h"

#include <random>
#include <string>
#include <vector>

#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig Layers(int64_t layers) {
  ModelConfig model = GptModel();
  model.num_layers = layers;
  return model;
}

// "0-2 15-18 | 3-6 19-22": the chunks of each stage, layers inclusive.
std::string Table(int64_t layers, const Layout& layout) {
  EXPECT_OK(Validate(Layers(layers), layout));
  const auto chunks = LayersOfChunks(Layers(layers), layout);
  std::string table;
  for (int64_t stage = 0; stage < layout.pipeline; ++stage) {
    if (stage > 0) table += "| ";
    for (size_t i = stage; i < chunks.size(); i += layout.pipeline) {
      const LayerRange& chunk = chunks[i];
      table += chunk.begin == chunk.end
                   ? "- "
                   : std::to_string(chunk.begin) + "-" +
                         std::to_string(chunk.end - 1) + " ";
    }
  }
  return table;
}

// parallel-layout.md 2.2.
TEST(Stages, InterleaveAsTheReferenceHasIt) {
  const std::string two = "0-1 4-5 | 2-3 6-7 ";
  EXPECT_EQ(Table(8, {.pipeline = 2, .virtual_stages = 2}), two);
  EXPECT_EQ(Table(8, {.pipeline = 2, .layers_per_virtual_stage = 2}), two);
  EXPECT_EQ(Table(8, {.pipeline = 2, .virtual_stages = 4}),
            "0-0 2-2 4-4 6-6 | 1-1 3-3 5-5 7-7 ");
  EXPECT_EQ(Table(32, {.pipeline = 4, .layers_per_virtual_stage = 4}),
            "0-3 16-19 | 4-7 20-23 | 8-11 24-27 | 12-15 28-31 ");
}

// 2.3.
TEST(Stages, CountEmbeddingAndLossAsLayers) {
  Layout layout = {.pipeline = 4, .virtual_stages = 2};
  layout.account_for_embedding = layout.account_for_loss = true;
  const std::string table = "0-2 15-18 | 3-6 19-22 | 7-10 23-26 | 11-14 27-29 ";
  EXPECT_EQ(Table(30, layout), table);
  layout.virtual_stages = 0;
  layout.layers_per_virtual_stage = 4;
  EXPECT_EQ(Table(30, layout), table);
  EXPECT_EQ(Table(7, {.pipeline = 2, .account_for_embedding = true}),
            "0-2 | 3-6 ");
  EXPECT_EQ(Table(7, {.pipeline = 2, .account_for_loss = true}), "0-3 | 4-6 ");
  EXPECT_EQ(Table(1, {.pipeline = 2, .account_for_embedding = true}),
            "- | 0-0 ");
}

// 2.4.
TEST(Stages, HaveTheGivenFirstAndLastSizes) {
  EXPECT_EQ(
      Table(14,
            {.pipeline = 4, .first_stage_layers = 3, .last_stage_layers = 3}),
      "0-2 | 3-6 | 7-10 | 11-13 ");
  EXPECT_EQ(Table(14, {.pipeline = 4, .last_stage_layers = 2}),
            "0-3 | 4-7 | 8-11 | 12-13 ");
  EXPECT_EQ(Table(12, {.pipeline = 4,
                       .virtual_stages = 2,
                       .first_stage_layers = 2,
                       .last_stage_layers = 2}),
            "0-0 6-6 | 1-2 7-8 | 3-4 9-10 | 5-5 11-11 ");
  EXPECT_EQ(
      Table(5,
            {.pipeline = 2, .first_stage_layers = 4, .last_stage_layers = 1}),
      "0-3 | 4-4 ");
}

TEST(Stages, FollowAnExplicitList) {
  EXPECT_EQ(Table(7, {.pipeline = 2, .stage_layers = {2, 2, 2, 1}}),
            "0-1 4-5 | 2-3 6-6 ");
  EXPECT_EQ(Table(3, {.pipeline = 3, .stage_layers = {0, 3, 0}}),
            "- | 0-2 | - ");
}

// B11: layers lost to integer division over pipeline stages.
TEST(Stages, B11RefuseARemainderWithTheNumbers) {
  const auto refused = [](int64_t layers, const Layout& layout,
                          const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      EXPECT_THAT(
          ValidateStages(Layers(layers), layout),
          StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(word)));
    }
  };
  const std::string pp = "--pipeline-model-parallel-size ";
  refused(30, {.pipeline = 4}, {"--num-layers 30", pp + "4"});
  refused(5, {.pipeline = 2}, {"--num-layers 5", pp + "2"});
  refused(80, {.pipeline = 16, .virtual_stages = 2},
          {"a stage of 5 layers", "2 virtual stages"});
  refused(80, {.pipeline = 16, .layers_per_virtual_stage = 2},
          {"5 layers of a stage", "--num-layers-per-virtual-pipeline-stage 2"});
  refused(8, {.pipeline = 2, .account_for_loss = true},
          {"--num-layers 8 plus loss", pp + "2"});
  refused(8, {.pipeline = 4, .first_stage_layers = 1},
          {"less --decoder-first-pipeline-num-layers 1", "leaves 7 layers",
           "other 3 stages"});
  refused(8, {.pipeline = 4, .first_stage_layers = 4, .last_stage_layers = 4},
          {"leaves 0 layers for the other 2"});
  refused(8, {.pipeline = 2, .first_stage_layers = 4, .last_stage_layers = 3},
          {"leaves 1 layers for the other 0"});
  refused(4, {.pipeline = 2, .stage_layers = {1, 2}},
          {"3 layers in all", "--num-layers 4"});
  refused(4, {.pipeline = 2, .stage_layers = {1, 2, 1}},
          {"3 stages", pp + "2"});
  refused(4, {.pipeline = 2, .stage_layers = {-1, 5}}, {"a stage of -1"});
}

TEST(Stages, RefuseFlagsThatExcludeOneAnother) {
  const auto refused = [](const Layout& layout, const std::string& one,
                          const std::string& other) {
    for (const std::string& word : {one, other}) {
      EXPECT_THAT(
          ValidateStages(Layers(8), layout),
          StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(word)));
    }
  };
  const std::string first = "--decoder-first-pipeline-num-layers";
  const std::string per_virtual = "--num-layers-per-virtual-pipeline-stage";
  const std::string ranks = "--num-virtual-stages-per-pipeline-rank";
  const std::string list = "--pipeline-model-parallel-layout";
  refused({.pipeline = 2, .layers_per_virtual_stage = 2, .virtual_stages = 2},
          per_virtual, ranks);
  refused(
      {.pipeline = 2, .layers_per_virtual_stage = 2, .first_stage_layers = 4},
      per_virtual, first);
  refused({.pipeline = 2, .first_stage_layers = 4, .account_for_loss = true},
          first, "--account-for-loss-in-pipeline-split");
  refused({.pipeline = 2, .virtual_stages = 1, .stage_layers = {4, 4}}, list,
          ranks);
  refused({.first_stage_layers = 8}, first, "found 1");
  refused({.virtual_stages = 2}, "2 virtual stages", "found 1");
  refused({.stage_layers = {4, 4}}, "2 virtual stages", "found 1");
}

TEST(Stages, RefuseSizesOutOfRange) {
  for (const int64_t bad : {int64_t{-1}, int64_t{11}, int64_t{1} << 62}) {
    for (const auto member :
         {&Layout::layers_per_virtual_stage, &Layout::virtual_stages,
          &Layout::first_stage_layers, &Layout::last_stage_layers}) {
      Layout layout = {.pipeline = 2};
      layout.*member = bad;
      EXPECT_THAT(ValidateStages(Layers(8), layout),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           HasSubstr("expected 1 to")));
    }
  }
}

// B13: layer offset wrong when only the last stage size is given.
TEST(Stages, B13CoverAllLayersOnceWhateverIsGiven) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const ModelConfig model = RandomMixture(random);
    const Layout layout = RandomWideLayout(model, random);
    int64_t next = 0;
    for (const LayerRange& chunk : LayersOfChunks(model, layout)) {
      EXPECT_EQ(chunk.begin, next);
      EXPECT_GE(chunk.end, chunk.begin);
      next = chunk.end;
    }
    EXPECT_EQ(next, model.num_layers) << seed << ": " << ToString(layout);
  }
  EXPECT_EQ(
      Table(10, {.pipeline = 3, .virtual_stages = 2, .last_stage_layers = 2}),
      "0-1 5-6 | 2-3 7-8 | 4-4 9-9 ");
  EXPECT_EQ(
      Table(10, {.pipeline = 3, .virtual_stages = 2, .first_stage_layers = 2}),
      "0-0 5-5 | 1-2 6-7 | 3-4 8-9 ");
}

TEST(ParseStageLayout, CountsLayersOfStages) {
  const auto parse = [](const std::string& text) {
    return ParseStageLayout(text).value();
  };
  EXPECT_THAT(parse("EL"), ElementsAre(0));
  EXPECT_THAT(parse("Ett|(tt|)*2tL"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(parse("E,t*3|t*2,L"), ElementsAre(3, 2));
  EXPECT_THAT(parse("E|tt||L"), ElementsAre(0, 2, 0, 0));
  EXPECT_EQ(parse("Ettt|(tt|)*29,L").size(), 31);
}

TEST(ParseStageLayout, NamesThePlaceOfAMistake) {
  const auto refused = [](const std::string& text, const std::string& word) {
    EXPECT_THAT(ParseStageLayout(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(word)))
        << text;
  };
  for (const char* text :
       {"", "tt|tt", "Ett|tt", "tEt|tL", "Et|EtL", "EtL|L"}) {
    refused(text, "one E");
  }
  refused("Ett|xL", "found 'x' at character 4");
  refused("Em|L", "found 'm'");
  refused("E(tt|L", "missing ')'");
  refused("Ett)|L", "unmatched ')'");
  refused("E((t|)*2)*2L", "found '('");
  refused("Et*|L", "count above 0");
  refused("Et*0L", "count above 0");
  refused("Et*99999999999L", "count above 0");
  refused("E(t*60000)*60000L", "more layers than");
}

}  // namespace
}  // namespace shardshift::reshard
