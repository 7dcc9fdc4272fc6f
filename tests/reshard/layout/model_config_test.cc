// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/model_config.h"

#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ModelConfigJson, RoundTrips) {
  std::mt19937 random(1);
  std::vector<ModelConfig> models = {GptModel(), LlamaModel()};
  for (int i = 0; i < 50; ++i) models.push_back(RandomModel(random));
  for (const ModelConfig& model : models) {
    const std::string text = ToJson(model).dump();
    ASSERT_OK_AND_ASSIGN(const ModelConfig read,
                         ModelFromJson(nlohmann::json::parse(text)));
    EXPECT_EQ(read, model) << text;
  }
}

TEST(ModelConfigJson, KeepsEveryBitOfItsNumbers) {
  ModelConfig model = GptModel();
  model.norm_epsilon = 0.1 + 0.2;
  model.rotary_base = 1e6 / 3;
  ASSERT_OK_AND_ASSIGN(
      const ModelConfig read,
      ModelFromJson(nlohmann::json::parse(ToJson(model).dump())));
  EXPECT_EQ(read, model);
}

TEST(ModelConfigJson, RefusesEachMissingKeyByName) {
  const nlohmann::json whole = ToJson(LlamaModel());
  for (const auto& [key, value] : whole.items()) {
    nlohmann::json json = whole;
    json.erase(key);
    EXPECT_THAT(ModelFromJson(json), StatusIs(absl::StatusCode::kDataLoss,
                                              AllOf(HasSubstr("model." + key),
                                                    HasSubstr("is missing"))));
  }
}

TEST(ModelConfigJson, RefusesEachMistypedKeyByName) {
  const nlohmann::json whole = ToJson(LlamaModel());
  for (const auto& [key, value] : whole.items()) {
    nlohmann::json json = whole;
    json[key] = nlohmann::json::array();
    EXPECT_THAT(ModelFromJson(json), StatusIs(absl::StatusCode::kDataLoss,
                                              HasSubstr("model." + key)));
  }
}

TEST(ModelConfigJson, RefusesAFractionOfALayer) {
  nlohmann::json json = ToJson(GptModel());
  json["num_layers"] = 2.5;
  EXPECT_THAT(ModelFromJson(json), StatusIs(absl::StatusCode::kDataLoss,
                                            HasSubstr("model.num_layers")));
}

TEST(ModelConfigJson, RefusesUnknownNames) {
  for (const char* key : {"normalization", "position_embedding_type", "gelu"}) {
    nlohmann::json json = ToJson(GptModel());
    json[key] = "other";
    EXPECT_THAT(ModelFromJson(json),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr(std::string(key) + " \"other\"")));
  }
}

TEST(ModelConfigJson, RefusesAKeyItDoesNotKnow) {
  nlohmann::json json = ToJson(GptModel());
  json["num_memories"] = 8;
  EXPECT_THAT(
      ModelFromJson(json),
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr("num_memories"), HasSubstr("another version"))));
}

TEST(ModelConfigJson, RefusesWhatIsNoObject) {
  for (const nlohmann::json& json :
       {nlohmann::json(), nlohmann::json(7), nlohmann::json::array()}) {
    EXPECT_THAT(ModelFromJson(json), StatusIs(absl::StatusCode::kDataLoss,
                                              HasSubstr("not an object")));
  }
}

TEST(ModelConfigJson, RefusesAModelThatCannotBe) {
  nlohmann::json json = ToJson(GptModel());
  json["padded_vocab_size"] = 250;
  EXPECT_THAT(ModelFromJson(json), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("padded_vocab_size")));
}

TEST(ValidateModel, TakesBothKinds) {
  EXPECT_OK(Validate(GptModel()));
  EXPECT_OK(Validate(LlamaModel()));
}

TEST(ModelConfigJson, HasKeysOfAMixtureOnlyWhereTheyDiffer) {
  const size_t plain = ToJson(LlamaModel()).size();
  EXPECT_EQ(ToJson(GptModel()).size(), plain);
  const nlohmann::json json = ToJson(MixtureModel());
  EXPECT_EQ(json.size(), plain + 5);
  EXPECT_EQ(json["num_experts"], 4);
  EXPECT_FALSE(json.contains("moe_router_topk"));
  ASSERT_OK_AND_ASSIGN(const ModelConfig read, ModelFromJson(json));
  EXPECT_EQ(read, MixtureModel());
}

// Every field that is stored only where it differs from its default.
std::vector<ModelConfig> ModelsWithOptionalFields() {
  std::vector<ModelConfig> models;
  const auto add = [&models](ModelConfig model, auto change) {
    change(model);
    models.push_back(model);
  };
  using Model = ModelConfig;
  add(GptModel(), [](Model& m) { m.exact_gelu = true; });
  add(LlamaModel(), [](Model& m) { m.sliding_window = 4096; });
  add(LlamaModel(), [](Model& m) { m.rotary_interleaved = true; });
  add(LlamaModel(),
      [](Model& m) { m.rotary_seq_len_interpolation_factor = 2.5; });
  add(LlamaModel(), [](Model& m) {
    m.use_rope_scaling = true;
    m.rope_scaling_factor = 32;
    m.rope_low_freq_factor = 0.5;
    m.rope_high_freq_factor = 2;
    m.rope_original_max_position_embeddings = 64;
  });
  add(MixtureModel(), [](Model& m) { m.moe_router_pre_softmax = true; });
  return models;
}

TEST(ModelConfigJson, KeepsWhatIsComputedFromTheTensors) {
  const size_t plain = ToJson(LlamaModel()).size();
  for (const ModelConfig& model : ModelsWithOptionalFields()) {
    EXPECT_OK(Validate(model));
    const nlohmann::json json = ToJson(model);
    EXPECT_TRUE(json.size() > plain || json["gelu"] == "erf") << json;
    ASSERT_OK_AND_ASSIGN(const ModelConfig read, ModelFromJson(json));
    EXPECT_EQ(read, model) << json;
  }
}

TEST(ValidateModel, RefusesRotationsThatCannotBe) {
  const auto refused = [](auto change, const std::string& word) {
    ModelConfig model = LlamaModel();
    model.use_rope_scaling = true;
    EXPECT_OK(Validate(model));
    change(model);
    EXPECT_THAT(Validate(model),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(word)));
  };
  using Model = ModelConfig;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  refused([](Model& m) { m.rope_scaling_factor = kNan; },
          "rope_scaling_factor is nan");
  refused([](Model& m) { m.rope_low_freq_factor = 0; },
          "rope_low_freq_factor is 0");
  refused([](Model& m) { m.rope_high_freq_factor = -1; },
          "rope_high_freq_factor is -1");
  refused([](Model& m) { m.rope_low_freq_factor = 4; },
          "rope_low_freq_factor is 4, expected below");
  refused([](Model& m) { m.rope_original_max_position_embeddings = 0; },
          "rope_original_max_position_embeddings is 0");
  refused([](Model& m) { m.rotary_seq_len_interpolation_factor = 2; },
          "expected one of them");
  refused([](Model& m) { m.rotary_seq_len_interpolation_factor = 0; },
          "rotary_seq_len_interpolation_factor is 0");
  refused(
      [](Model& m) {
        m.use_rope_scaling = false;
        m.rope_scaling_factor = 2;
      },
      "rope_scaling_factor is 2.0, but use_rope_scaling is false");
  refused(
      [](Model& m) {
        m.position_embedding = PositionEmbedding::kLearnedAbsolute;
      },
      "use_rope_scaling is true, but position_embedding_type is not rope");
  refused([](Model& m) { m.sliding_window = -1; }, "sliding_window is -1");
  refused([](Model& m) { m.exact_gelu = true; }, "swiglu is true");
}

TEST(ModelConfigJson, RefusesKeysOfAMixtureThatAreMistyped) {
  for (const char* key :
       {"qk_layernorm", "num_experts", "dense_layers", "moe_ffn_hidden_size",
        "moe_router_topk", "moe_shared_expert_gate",
        "moe_shared_expert_intermediate_size"}) {
    nlohmann::json json = ToJson(MixtureModel());
    json[key] = "2";
    EXPECT_THAT(ModelFromJson(json),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(key)));
  }
}

TEST(ValidateModel, RefusesAMixtureThatCannotBe) {
  EXPECT_OK(Validate(MixtureModel()));
  const auto refused = [](auto change, const std::string& word) {
    ModelConfig model = MixtureModel();
    change(model);
    EXPECT_THAT(Validate(model),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(word)));
  };
  using Model = ModelConfig;
  refused([](Model& m) { m.num_experts = -1; }, "num_experts is -1");
  refused([](Model& m) { m.num_experts = (1 << 16) + 1; },
          "num_experts is 65537, expected 0 to 65536");
  refused([](Model& m) { m.num_experts = 0; },
          "moe_ffn_hidden_size is 8, but num_experts is 0; give --num-experts");
  refused([](Model& m) { m.dense_layers = {m.num_layers}; },
          "dense_layers has ");
  refused([](Model& m) { m.dense_layers = {-1}; }, "dense_layers has -1");
  refused(
      [](Model& m) {
        m.dense_layers = {1, 1};
      },
      "dense_layers is not ascending");
  refused(
      [](Model& m) {
        m.dense_layers.resize(m.num_layers);
        std::iota(m.dense_layers.begin(), m.dense_layers.end(), 0);
      },
      "dense_layers names all layers");
  refused([](Model& m) { m.moe_ffn_hidden_size = 0; },
          "moe_ffn_hidden_size is 0");
  refused([](Model& m) { m.moe_router_topk = 5; },
          "moe_router_topk is 5, expected 1 to 4");
  refused([](Model& m) { m.moe_shared_expert_intermediate_size = -1; },
          "moe_shared_expert_intermediate_size is -1");
  refused([](Model& m) { m.moe_shared_expert_intermediate_size = 0; },
          "there is no shared expert");
  refused([](Model& m) { m.add_bias_linear = true; }, "--disable-bias-linear");
  refused(
      [](Model& m) {
        m.moe_ffn_hidden_size = 1 << 30;
        m.hidden_size = m.num_experts = 1 << 16;
      },
      "parameters, expected");
}

TEST(ValidateModel, RefusesExtentsOutOfRange) {
  using Member = int64_t ModelConfig::*;
  const std::vector<std::pair<const char*, Member>> extents = {
      {"num_layers", &ModelConfig::num_layers},
      {"hidden_size", &ModelConfig::hidden_size},
      {"ffn_hidden_size", &ModelConfig::ffn_hidden_size},
      {"num_attention_heads", &ModelConfig::num_attention_heads},
      {"num_query_groups", &ModelConfig::num_query_groups},
      {"kv_channels", &ModelConfig::kv_channels},
      {"vocab_size", &ModelConfig::vocab_size},
      {"padded_vocab_size", &ModelConfig::padded_vocab_size},
      {"max_position_embeddings", &ModelConfig::max_position_embeddings}};
  for (const auto& [name, member] : extents) {
    for (const int64_t bad : {int64_t{0}, int64_t{-1}, (int64_t{1} << 31) + 1,
                              std::numeric_limits<int64_t>::max()}) {
      ModelConfig model = GptModel();
      model.*member = bad;
      EXPECT_THAT(Validate(model),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           HasSubstr(std::string(name) + " is ")))
          << bad;
    }
  }
}

TEST(ValidateModel, BoundsWhatAModelMayAskOfMemory) {
  ModelConfig model = GptModel();
  model.num_layers = 1 << 16;
  EXPECT_OK(Validate(model));
  ++model.num_layers;
  EXPECT_THAT(Validate(model), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("num_layers is 65537")));
  model = GptModel();
  model.hidden_size = model.ffn_hidden_size = int64_t{1} << 31;
  EXPECT_THAT(Validate(model), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("parameters, expected")));
}

TEST(ValidateModel, RefusesGroupsThatDoNotDivideTheHeads) {
  ModelConfig model = GptModel();
  model.num_query_groups = 3;
  EXPECT_THAT(Validate(model),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("num_query_groups 3"),
                             HasSubstr("num_attention_heads 4"))));
}

TEST(ValidateModel, RefusesAPaddedVocabularyBelowTheTrueOne) {
  ModelConfig model = GptModel();
  model.padded_vocab_size = model.vocab_size;
  EXPECT_OK(Validate(model));
  --model.padded_vocab_size;
  EXPECT_THAT(Validate(model), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("padded_vocab_size 250")));
}

TEST(ValidateModel, RefusesAnOddHeadOnlyUnderRope) {
  ModelConfig model = GptModel();
  model.kv_channels = 3;
  EXPECT_OK(Validate(model));
  model.position_embedding = PositionEmbedding::kRope;
  EXPECT_THAT(Validate(model), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("kv_channels is 3")));
}

TEST(ValidateModel, RefusesConstantsThatAreNotAboveZero) {
  using Member = double ModelConfig::*;
  const std::vector<std::pair<const char*, Member>> constants = {
      {"norm_epsilon", &ModelConfig::norm_epsilon},
      {"rotary_base", &ModelConfig::rotary_base}};
  for (const auto& [name, member] : constants) {
    for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
      ModelConfig model = GptModel();
      model.*member = bad;
      EXPECT_THAT(Validate(model),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(name)))
          << bad;
    }
  }
}

}  // namespace
}  // namespace shardshift::reshard
