// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/layout.h"

#include <algorithm>
#include <string>
#include <vector>

#include "reshard/layout/stages.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::HasSubstr;
using Groups = std::vector<std::vector<int64_t>>;

// The ranks that agree in all coordinates but those that `erase` blanks.
template <typename Erase>
Groups GroupsOf(const Layout& layout, Erase erase) {
  std::vector<RankCoordinates> keys;
  Groups groups;
  for (int64_t rank = 0; rank < layout.world_size(); ++rank) {
    RankCoordinates key = CoordinatesOf(layout, rank);
    erase(key);
    const auto at = std::find(keys.begin(), keys.end(), key) - keys.begin();
    if (at == static_cast<ptrdiff_t>(keys.size())) {
      keys.push_back(key);
      groups.emplace_back();
    }
    groups[at].push_back(rank);
  }
  return groups;
}

// parallel-layout.md 1.3: world 16, TP 2, PP 2, DP 4.
constexpr Layout kWorked = {.tensor = 2, .pipeline = 2, .data = 4};

TEST(RankOrder, IsMegatronsInTheWorkedExample) {
  EXPECT_EQ(GroupsOf(kWorked, [](RankCoordinates& c) { c.tensor = 0; }),
            (Groups{{0, 1},
                    {2, 3},
                    {4, 5},
                    {6, 7},
                    {8, 9},
                    {10, 11},
                    {12, 13},
                    {14, 15}}));
  EXPECT_EQ(
      GroupsOf(kWorked, [](RankCoordinates& c) { c.data = 0; }),
      (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
  EXPECT_EQ(GroupsOf(kWorked, [](RankCoordinates& c) { c.pipeline = 0; }),
            (Groups{{0, 8},
                    {1, 9},
                    {2, 10},
                    {3, 11},
                    {4, 12},
                    {5, 13},
                    {6, 14},
                    {7, 15}}));
  EXPECT_EQ(
      GroupsOf(kWorked, [](RankCoordinates& c) { c.tensor = c.pipeline = 0; }),
      (Groups{{0, 1, 8, 9}, {2, 3, 10, 11}, {4, 5, 12, 13}, {6, 7, 14, 15}}));
}

TEST(RankOrder, InvertsExactly) {
  for (int64_t tensor = 1; tensor <= 4; ++tensor) {
    for (int64_t pipeline = 1; pipeline <= 3; ++pipeline) {
      for (int64_t data = 1; data <= 3; ++data) {
        const Layout layout = {tensor, pipeline, data};
        for (int64_t rank = 0; rank < layout.world_size(); ++rank) {
          const RankCoordinates at = CoordinatesOf(layout, rank);
          EXPECT_LT(at.tensor, tensor);
          EXPECT_LT(at.pipeline, pipeline);
          EXPECT_LT(at.data, data);
          EXPECT_EQ(RankOf(layout, at), rank) << ToString(layout);
        }
      }
    }
  }
}

// parallel-layout.md 1.3: the same world, EP 2 with ETP 2, and EP 4 with ETP 1.
TEST(ExpertRankOrder, IsMegatronsInTheWorkedExamples) {
  const auto groups = [](const Layout& layout, auto same) {
    Groups found;
    for (int64_t rank = 0; rank < layout.world_size(); ++rank) {
      const ExpertCoordinates at = ExpertCoordinatesOf(layout, rank);
      EXPECT_EQ(RankOf(layout, at), rank);
      const auto group =
          std::find_if(found.begin(), found.end(), [&](const auto& ranks) {
            return same(ExpertCoordinatesOf(layout, ranks[0]), at);
          });
      (group == found.end() ? found.emplace_back() : *group).push_back(rank);
    }
    return found;
  };
  using At = ExpertCoordinates;
  const auto expert = [](const At& a, const At& b) {
    return a.tensor == b.tensor && a.data == b.data && a.pipeline == b.pipeline;
  };
  const auto data = [](const At& a, const At& b) {
    return a.tensor == b.tensor && a.expert == b.expert &&
           a.pipeline == b.pipeline;
  };
  Layout layout = kWorked;
  layout.expert = 2;
  EXPECT_EQ(layout.expert_data_size(), 2);
  EXPECT_EQ(groups(layout, expert), (Groups{{0, 2},
                                            {1, 3},
                                            {4, 6},
                                            {5, 7},
                                            {8, 10},
                                            {9, 11},
                                            {12, 14},
                                            {13, 15}}));
  EXPECT_EQ(groups(layout, data), (Groups{{0, 4},
                                          {1, 5},
                                          {2, 6},
                                          {3, 7},
                                          {8, 12},
                                          {9, 13},
                                          {10, 14},
                                          {11, 15}}));
  layout.expert = 4;
  layout.expert_tensor = 1;
  EXPECT_EQ(
      groups(layout, expert),
      (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
}

TEST(LayersOfStage, HandsOutEveryLayerOnceInOrder) {
  ModelConfig model = GptModel();
  model.num_layers = 12;
  for (const int64_t pipeline : {1, 2, 3, 4, 6, 12}) {
    int64_t next = 0;
    for (int64_t stage = 0; stage < pipeline; ++stage) {
      const LayerRange layers =
          LayersOfStage(model, {.pipeline = pipeline}, stage);
      EXPECT_EQ(layers.begin, next);
      EXPECT_EQ(layers.end - layers.begin, 12 / pipeline);
      next = layers.end;
    }
    EXPECT_EQ(next, 12);
  }
}

void ExpectRefused(const ModelConfig& model, const Layout& layout,
                   const std::vector<std::string>& words) {
  const absl::Status status = Validate(model, layout);
  for (const std::string& word : words) {
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(word)));
  }
}

// LlamaModel with other heads, groups and feed-forward width.
ModelConfig Widths(int64_t heads, int64_t groups, int64_t ffn,
                   int64_t padded_vocab = 264) {
  ModelConfig model = LlamaModel();
  model.num_attention_heads = heads;
  model.num_query_groups = groups;
  model.ffn_hidden_size = ffn;
  model.padded_vocab_size = padded_vocab;
  return model;
}

ModelConfig Layers(int64_t layers) {
  ModelConfig model = GptModel();
  model.num_layers = layers;
  return model;
}

TEST(ValidateLayout, NamesTheFlagAndTheNumbersThatDoNotFit) {
  const std::string tp = "--tensor-model-parallel-size";
  const std::string pp = "--pipeline-model-parallel-size";
  const Layout tp3 = {.tensor = 3};
  ExpectRefused(GptModel(), {.tensor = 0}, {tp + " is 0"});
  ExpectRefused(GptModel(), {.pipeline = -1}, {pp + " is -1"});
  ExpectRefused(GptModel(), {.data = 0}, {"--data-parallel-size is 0"});
  ExpectRefused(GptModel(), {.data = (1 << 20) + 1}, {"--data-parallel-size"});
  ExpectRefused(GptModel(), {.tensor = 2, .data = 1 << 20},
                {"2097152 ranks", "TP2 PP1 DP1048576"});
  ExpectRefused(GptModel(), tp3, {"--num-attention-heads 4", tp + " 3"});
  ExpectRefused(Widths(12, 2, 24), tp3, {"--num-query-groups 2", tp + " 3"});
  ExpectRefused(Widths(6, 3, 23), tp3, {"--ffn-hidden-size 23", tp + " 3"});
  ExpectRefused(Widths(6, 3, 24, 265), tp3,
                {"padded vocabulary size 265", tp + " 3"});
  ExpectRefused(Layers(30), {.pipeline = 4}, {"--num-layers 30", pp + " 4"});
  ExpectRefused(Layers(5), {.pipeline = 2}, {"--num-layers 5", pp + " 2"});
  ExpectRefused(Layers(2), {.pipeline = 4}, {"--num-layers 2", pp + " 4"});
}

TEST(ValidateLayout, RefusesFusedRowsThatDoNotSplitEvenly) {
  // 8 heads and 1 group of odd width: (8 + 2) * 1 rows over 4 ranks.
  ModelConfig model = Widths(8, 1, 24);
  model.position_embedding = PositionEmbedding::kLearnedAbsolute;
  model.kv_channels = 1;
  EXPECT_THAT(Validate(model, {.tensor = 4}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("fused QKV width 10")));
  model.kv_channels = 2;
  EXPECT_OK(Validate(model, {.tensor = 4}));
}

TEST(ValidateLayout, TakesFewerGroupsThanRanks) {
  EXPECT_OK(Validate(LlamaModel(), {.tensor = 4}));
}

TEST(ValidateLayout, RefusesExpertAxesThatDoNotFit) {
  const std::string ep = "--expert-model-parallel-size";
  const std::string etp = "--expert-tensor-parallel-size";
  const ModelConfig mixture = MixtureModel();
  ExpectRefused(LlamaModel(), {.data = 2, .expert = 2},
                {ep + " is 2", "--num-experts", "drop the flag"});
  ExpectRefused(LlamaModel(), {.data = 2, .expert_tensor = 1},
                {etp + " is 1", "--num-experts"});
  ExpectRefused(mixture, {.expert = 0}, {ep + " is 0"});
  ExpectRefused(mixture, {.expert_tensor = -1}, {etp + " is -1"});
  ExpectRefused(mixture, {.data = 3, .expert = 3},
                {"--num-experts 4", ep + " 3"});
  ExpectRefused(mixture, {.data = 3, .expert_tensor = 3},
                {"--moe-ffn-hidden-size 8", etp + " 3"});
  ExpectRefused(mixture, {.data = 2, .expert = 4},
                {"2 ranks", "--data-parallel-size 2", ep + " 4", etp + " 1"});
  ModelConfig shared = mixture;
  shared.moe_shared_expert_intermediate_size = 7;
  ExpectRefused(shared, {.tensor = 2},
                {"--moe-shared-expert-intermediate-size 7"});
  EXPECT_OK(Validate(
      mixture, {.tensor = 2, .data = 2, .expert = 4, .expert_tensor = 1}));
}

TEST(ValidateLayout, RefusesAModelThatCannotBe) {
  ModelConfig model = GptModel();
  model.num_query_groups = 0;
  EXPECT_THAT(Validate(model, {}), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("num_query_groups")));
}

TEST(LayoutJson, RoundTripsAndRecordsTheBucketSize) {
  const Layout layout = {
      .tensor = 2, .pipeline = 3, .data = 50, .distributed_optimizer = true};
  const nlohmann::json json = ToJson(layout);
  EXPECT_EQ(json["bucket_size"], 50'000'000);
  EXPECT_EQ(ToJson(Layout{})["bucket_size"], 40'000'000);
  ASSERT_OK_AND_ASSIGN(const Layout read, LayoutFromJson(json));
  EXPECT_EQ(read, layout);
}

Layout FullLayout() {
  Layout layout = {.tensor = 2, .pipeline = 2, .data = 4, .expert = 4};
  layout.expert_tensor = 1;
  layout.layers_per_virtual_stage = 2;
  layout.virtual_stages = 3;
  layout.first_stage_layers = 4;
  layout.last_stage_layers = 5;
  layout.account_for_embedding = layout.account_for_loss = true;
  layout.stage_layers = {1, 2, 0};
  return layout;
}

// Records written before there were these keys stay byte for byte the same.
TEST(LayoutJson, HasKeysOfOtherAxesOnlyWhereTheyDiffer) {
  EXPECT_EQ(ToJson(Layout{}).size(), 5);
  const nlohmann::json json = ToJson(FullLayout());
  EXPECT_EQ(json.size(), 14);
  ASSERT_OK_AND_ASSIGN(const Layout read, LayoutFromJson(json));
  EXPECT_EQ(read, FullLayout());
  EXPECT_EQ(ToJson(Layout{.expert = 2}).size(), 6);
}

TEST(LayoutJson, RefusesOtherAxesThatAreMistyped) {
  const nlohmann::json whole = ToJson(FullLayout());
  for (const auto& [key, value] : whole.items()) {
    if (key == "bucket_size") continue;
    for (const nlohmann::json& bad :
         {nlohmann::json("2"), nlohmann::json(), nlohmann::json({1, "a"})}) {
      nlohmann::json json = whole;
      json[key] = bad;
      EXPECT_THAT(LayoutFromJson(json),
                  StatusIs(absl::StatusCode::kDataLoss, HasSubstr("layout")))
          << key;
    }
  }
}

TEST(LayoutJson, RefusesWhatIsMissingOrMistyped) {
  const nlohmann::json whole = ToJson(Layout{});
  const auto refused = [](const nlohmann::json& json) {
    EXPECT_THAT(LayoutFromJson(json),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("layout")))
        << json;
  };
  refused(nlohmann::json());
  refused(nlohmann::json::array());
  for (const char* key :
       {"tensor_model_parallel_size", "pipeline_model_parallel_size",
        "data_parallel_size", "use_distributed_optimizer"}) {
    nlohmann::json json = whole;
    json[key] = "2";
    refused(json);
    json[key] = 1.5;
    refused(json);
    json.erase(key);
    refused(json);
  }
}

TEST(LayoutText, NamesTheAxes) {
  EXPECT_EQ(ToString(kWorked), "TP2 PP2 DP4");
  EXPECT_EQ(ToString(Layout{.data = 2, .distributed_optimizer = true}),
            "TP1 PP1 DP2 distributed-optimizer");
  EXPECT_EQ(ToString(FullLayout()),
            "TP2 PP2 DP4 EP4 ETP1 layers-per-virtual-stage=2 VPP3 "
            "first-stage-layers=4 last-stage-layers=5 account-for-embedding "
            "account-for-loss stage-layers=1,2,0");
}

}  // namespace
}  // namespace shardshift::reshard
