// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/hf_config.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "reshard/layout/parameters.h"
#include "tests/reshard/formats/sample.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json Config(const std::string& name) {
  return json::parse(ReadData(name + "/config.json"));
}

// Of transformers 4.
json OldConfig(const std::string& name) {
  return json::parse(ReadData(name + "/config.old.json"));
}

// parallel-layout.md 4.13.
double InverseFrequency(const ModelConfig& model, int64_t lane) {
  const double frequency =
      std::pow(model.rotary_base, -2.0 * static_cast<double>(lane) /
                                      static_cast<double>(model.kv_channels)) /
      model.rotary_seq_len_interpolation_factor;
  if (!model.use_rope_scaling) return frequency;
  const double turns =
      static_cast<double>(model.rope_original_max_position_embeddings) *
      frequency / (2 * M_PI);
  if (turns > model.rope_high_freq_factor) return frequency;
  if (turns < model.rope_low_freq_factor) {
    return frequency / model.rope_scaling_factor;
  }
  const double smooth =
      (turns - model.rope_low_freq_factor) /
      (model.rope_high_freq_factor - model.rope_low_freq_factor);
  return (1 - smooth) * frequency / model.rope_scaling_factor +
         smooth * frequency;
}

int64_t NumParameters(const ModelConfig& model) {
  int64_t sum = 0;
  for (const LogicalTensor& tensor : LogicalTensors(model)) {
    sum += ckpt::NumElements(tensor.shape);
  }
  return sum;
}

void ExpectRotation(const ModelConfig& model, const json& expected) {
  EXPECT_EQ(model.position_embedding == PositionEmbedding::kRope,
            !expected.is_null());
  if (expected.is_null()) return;
  EXPECT_EQ(model.rotary_base, expected["rope_theta"]);
  const json& frequencies = expected["inv_freq"];
  ASSERT_EQ(2 * std::ssize(frequencies), model.kv_channels);
  for (int64_t i = 0; i < std::ssize(frequencies); ++i) {
    EXPECT_NEAR(InverseFrequency(model, i) / frequencies[i].get<double>(), 1,
                1e-14)
        << i;
  }
}

void ExpectExperts(const ModelConfig& model, const json& expected) {
  EXPECT_EQ(model.has_experts(), !expected.is_null());
  if (expected.is_null()) return;
  EXPECT_EQ(model.num_experts, expected["experts"]);
  EXPECT_EQ(model.moe_router_topk, expected["top_k"]);
  EXPECT_EQ(!model.moe_router_pre_softmax, expected["renormalize_top_k"]);
  EXPECT_EQ(model.moe_shared_expert_intermediate_size > 0,
            expected["shared_expert"]);
  EXPECT_EQ(model.moe_shared_expert_gate, expected["shared_expert"]);
  EXPECT_EQ(std::ssize(expected["layers"]), model.num_layers);
}

// expected.json is what transformers makes of the configuration.
void ExpectAsTransformers(const HfConfig& config, const json& expected) {
  const ModelConfig& model = config.model;
  EXPECT_EQ(ModelType(config.family), expected["model_type"]);
  EXPECT_EQ(model.vocab_size, expected["vocab_size"]);
  EXPECT_EQ(model.padded_vocab_size, expected["vocab_size"]);
  EXPECT_EQ(model.hidden_size, expected["hidden_size"]);
  EXPECT_EQ(model.num_layers, expected["layers"]);
  EXPECT_EQ(model.num_attention_heads, expected["heads"]);
  EXPECT_EQ(model.num_query_groups, expected["kv_heads"]);
  EXPECT_EQ(model.kv_channels, expected["head_dim"]);
  const json& window = expected["sliding_window"];
  EXPECT_EQ(model.sliding_window, window.is_null() ? 0 : window.get<int>());
  EXPECT_EQ(model.untie_embeddings_and_output_weights,
            expected["tied"].empty());
  EXPECT_EQ(model.norm_epsilon, expected["norm_eps"]);
  EXPECT_EQ(model.qk_layernorm, expected.value("qk_norm", false));
  EXPECT_EQ(model.normalization == Normalization::kRmsNorm,
            absl::StartsWith(expected["norm"].get<std::string>(), "RMSNorm"));
  const auto activation = expected["activation"].get<std::string>();
  EXPECT_EQ(model.swiglu, absl::StrContains(activation, "silu"));
  EXPECT_EQ(!model.swiglu && !model.exact_gelu,
            absl::StrContains(activation, "tanh"));
  ExpectRotation(model, expected.value("rope", json()));
  ExpectExperts(model, expected.value("moe", json()));
  EXPECT_EQ(NumParameters(model), expected["num_parameters"]);
}

TEST(ReadHfConfig, ConcludesWhatTransformersConcludes) {
  for (const std::string& name : Models()) {
    SCOPED_TRACE(name);
    const json expected = json::parse(ReadData(name + "/expected.json"));
    ASSERT_OK_AND_ASSIGN(const HfConfig config,
                         ParseHfConfig(ReadData(name + "/config.json")));
    ExpectAsTransformers(config, expected);
    EXPECT_EQ(config.dtype, "float32");
    ASSERT_OK_AND_ASSIGN(const HfConfig old,
                         ParseHfConfig(ReadData(name + "/config.old.json")));
    ExpectAsTransformers(old, expected);
    EXPECT_EQ(old.dtype, "float32");
    EXPECT_EQ(old.model, config.model);
  }
}

TEST(ReadHfConfig, TakesVariants) {
  for (const std::string& name : Variants()) {
    const std::string whole = name.substr(0, name.find('/'));
    ASSERT_OK_AND_ASSIGN(const HfConfig config, HfConfigFromJson(Config(name)));
    ASSERT_OK_AND_ASSIGN(const HfConfig same, HfConfigFromJson(Config(whole)));
    EXPECT_EQ(config.model, same.model) << name;
    EXPECT_EQ(config.dtype, name == "qwen2/bf16" ? "bfloat16" : "float32");
  }
}

ModelConfig ModelWithout(json config, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) config.erase(key);
  const auto read = HfConfigFromJson(config);
  EXPECT_OK(read);
  return read.ok() ? read->model : ModelConfig();
}

// What transformers 5.24 takes for keys that are not there.
TEST(ReadHfConfig, KnowsWhatAbsentKeysMean) {
  struct Absent {
    const char* name;
    int64_t key_value_heads;
    double theta;
    double epsilon;
    int64_t experts_per_token;
  };
  const Absent cases[] = {
      {"llama", 32, 1e4, 1e-6, 2},    {"mistral", 8, 1e4, 1e-6, 2},
      {"qwen2", 32, 1e4, 1e-6, 2},    {"qwen3", 32, 1e4, 1e-6, 2},
      {"mixtral", 8, 1e6, 1e-5, 2},   {"qwen2_moe", 16, 1e4, 1e-6, 4},
      {"qwen3_moe", 4, 1e4, 1e-6, 8},
  };
  for (const Absent& expected : cases) {
    SCOPED_TRACE(expected.name);
    json config = OldConfig(expected.name);
    config["num_attention_heads"] = 32;
    config["head_dim"] = 4;
    for (const char* experts : {"num_experts", "num_local_experts"}) {
      if (config.contains(experts)) config[experts] = 16;
    }
    const ModelConfig model = ModelWithout(
        config, {"num_key_value_heads", "rope_theta", "rms_norm_eps",
                 "num_experts_per_tok", "norm_topk_prob", "hidden_act",
                 "tie_word_embeddings", "rope_scaling"});
    EXPECT_EQ(model.num_query_groups, expected.key_value_heads);
    EXPECT_EQ(model.rotary_base, expected.theta);
    EXPECT_EQ(model.norm_epsilon, expected.epsilon);
    EXPECT_EQ(model.moe_router_topk, expected.experts_per_token);
    EXPECT_EQ(model.moe_router_pre_softmax,
              absl::EndsWith(expected.name, "_moe"));
    EXPECT_TRUE(model.untie_embeddings_and_output_weights);
    config["num_key_value_heads"] = nullptr;
    EXPECT_EQ(ModelWithout(config, {}).num_query_groups, 32);
  }
  EXPECT_EQ(ModelWithout(Config("qwen3"), {"head_dim"}).kv_channels, 128);
  EXPECT_EQ(ModelWithout(Config("qwen3_moe"), {"head_dim"}).kv_channels, 16);
  EXPECT_EQ(ModelWithout(Config("mistral"), {"head_dim"}).kv_channels, 16);
  EXPECT_EQ(ModelWithout(Config("mistral"), {"sliding_window"}).sliding_window,
            4096);
  EXPECT_EQ(ModelWithout(Config("mixtral"), {"sliding_window"}).sliding_window,
            0);
  const ModelConfig gpt2 = ModelWithout(
      Config("gpt2"), {"n_inner", "layer_norm_epsilon", "tie_word_embeddings",
                       "activation_function", "n_positions"});
  EXPECT_EQ(gpt2.ffn_hidden_size, 192);
  EXPECT_EQ(gpt2.norm_epsilon, 1e-5);
  EXPECT_EQ(gpt2.max_position_embeddings, 1024);
  EXPECT_FALSE(gpt2.untie_embeddings_and_output_weights);
}

// One key of a configuration changed.
absl::StatusOr<HfConfig> ReadWith(const std::string& name,
                                  const std::string& key, const json& value) {
  json config = Config(name);
  config[key] = value;
  return HfConfigFromJson(config);
}

TEST(ReadHfConfig, ReadsWindowsOfQwen) {
  // -1 if it is refused.
  const auto window = [](const std::string& name, const json& changes) {
    json config = Config(name);
    config.erase("layer_types");
    config["use_sliding_window"] = true;
    config["sliding_window"] = 8;
    config.update(changes);
    const auto read = HfConfigFromJson(config);
    if (read.ok()) return read->model.sliding_window;
    EXPECT_THAT(read, StatusIs(absl::StatusCode::kUnimplemented,
                               HasSubstr("of 4 layers")));
    return int64_t{-1};
  };
  for (const char* name : {"qwen2", "qwen3"}) {
    EXPECT_EQ(window(name, {{"max_window_layers", 0}}), 8);
    EXPECT_EQ(window(name, {{"max_window_layers", 4}}), 0);
    EXPECT_EQ(window(name, {{"max_window_layers", 2}}), -1);
    EXPECT_EQ(window(name, json::object()), 0);
    EXPECT_EQ(
        window(name, {{"max_window_layers", 0}, {"use_sliding_window", false}}),
        0);
    EXPECT_EQ(
        window(name, {{"max_window_layers", 0}, {"sliding_window", nullptr}}),
        0);
    const json types(4, "sliding_attention");
    EXPECT_EQ(window(name, {{"layer_types", types}}), 8);
    json mixed = types;
    mixed[2] = "full_attention";
    EXPECT_EQ(window(name, {{"layer_types", mixed}}), -1);
  }
  EXPECT_EQ(window("qwen2_moe", json::object()), -1);
  EXPECT_EQ(window("qwen2_moe", {{"max_window_layers", 0}}), 0);
  EXPECT_EQ(window("qwen3_moe", json::object()), 8);
  json config = Config("qwen2");
  config["use_sliding_window"] = true;
  config["layer_types"] = {"full_attention"};
  config["sliding_window"] = 8;
  EXPECT_THAT(
      HfConfigFromJson(config),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("layer_types")));
}

TEST(ReadHfConfig, ReadsRotations) {
  const auto with = [](const json& scaling) {
    json config = OldConfig("llama");
    config["rope_scaling"] = scaling;
    return HfConfigFromJson(config);
  };
  ASSERT_OK_AND_ASSIGN(const HfConfig linear,
                       with({{"type", "linear"}, {"factor", 2.5}}));
  EXPECT_EQ(linear.model.rotary_seq_len_interpolation_factor, 2.5);
  EXPECT_OK(with({{"rope_type", "default"}}));
  const auto refused = [&with](const json& scaling, const std::string& word) {
    EXPECT_THAT(with(scaling).status().message(), HasSubstr(word)) << scaling;
  };
  refused("linear", "\"rope_scaling\" is \"linear\", expected an object");
  refused({{"type", "linear"}}, "\"rope_scaling.factor\" is missing");
  refused({{"type", "linear"}, {"factor", 0}},
          "\"rope_scaling.factor\" is 0, expected a number above 0");
  refused({{"type", "linear"}, {"rope_type", "default"}}, "rope_scaling.type");
  refused({{"type", "yarn"}, {"factor", 4}},
          "rope_type \"yarn\" is not supported");
  refused({{"type", "default"}, {"mrope_section", {1}}}, "mrope_section");
  refused({{"type", "linear"}, {"factor", 2}, {"beta", 1}},
          "rope_scaling.beta");
  refused({{"partial_rotary_factor", 0.5}}, "partial_rotary_factor");
  refused({{"rope_type", 7}}, "\"rope_scaling.rope_type\" is 7");
  refused({{"rope_type", "llama3"}, {"factor", 2}}, "low_freq_factor");
  json config = Config("llama");
  config["rope_theta"] = 5.0;
  EXPECT_THAT(HfConfigFromJson(config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rope_parameters.rope_theta")));
  EXPECT_THAT(ReadWith("llama", "partial_rotary_factor", 0.5),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("partial_rotary_factor")));
  EXPECT_THAT(ReadWith("llama", "rope_scaling", {{"type", "default"}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("none beside \"rope_parameters\"")));
}

TEST(ReadHfConfig, RefusesAnotherKindOfModel) {
  const auto refused = [](const std::string& name, const std::string& key,
                          const json& value, const std::string& word) {
    EXPECT_THAT(ReadWith(name, key, value),
                StatusIs(absl::StatusCode::kUnimplemented,
                         AllOf(HasSubstr(word), HasSubstr("--generic"))));
  };
  refused("llama", "model_type", "bert",
          "\"model_type\" is \"bert\", supported are gpt2, llama, mistral, "
          "qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe");
  refused("llama", "model_type", 7, "\"model_type\" is 7");
  refused("llama", "architectures", {"LlamaForSequenceClassification"},
          "\"architectures\" is [\"LlamaForSequenceClassification\"]");
  refused("llama", "architectures", {"MistralForCausalLM"}, "Mistral");
  refused("llama", "architectures", 7, "\"architectures\" is 7");
  refused("llama", "quantization_config", {{"bits", 4}}, "quantized");
  refused("llama", "attention_bias", true, "only one of \"attention_bias\"");
  refused("llama", "mlp_bias", true, "only one of \"attention_bias\"");
  refused("qwen3", "attention_bias", true, "\"attention_bias\" is true");
  refused("gpt2", "scale_attn_weights", false, "\"scale_attn_weights\"");
  refused("gpt2", "scale_attn_by_inverse_layer_idx", true, "inverse_layer");
  refused("gpt2", "add_cross_attention", true, "cross_attention");
  refused("qwen3_moe", "mlp_only_layers", {"0"},
          "\"mlp_only_layers\" is [\"0\"], expected a list of layers 0 to 3");
  refused("qwen3_moe", "mlp_only_layers", {4}, "\"mlp_only_layers\" is [4]");
  json config = Config("llama");
  config.erase("model_type");
  EXPECT_OK(HfConfigFromJson(config));
  config.erase("architectures");
  EXPECT_THAT(HfConfigFromJson(config),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("\"model_type\" is null")));
}

TEST(ReadHfConfig, FindsTheLayersWithoutExperts) {
  json config = Config("qwen2_moe");
  const auto dense = [&config] {
    const absl::StatusOr<HfConfig> read = HfConfigFromJson(config);
    EXPECT_OK(read.status());
    return read.ok() ? read->model.dense_layers : std::vector<int64_t>();
  };
  EXPECT_THAT(dense(), IsEmpty());
  config["mlp_only_layers"] = {2, 0};
  EXPECT_THAT(dense(), ElementsAre(0, 2));
  // Experts in each second layer, from the second on.
  config["decoder_sparse_step"] = 2;
  EXPECT_THAT(dense(), ElementsAre(0, 2));
  config["mlp_only_layers"] = {1};
  EXPECT_THAT(dense(), ElementsAre(0, 1, 2));
  config["decoder_sparse_step"] = 9;
  EXPECT_THAT(HfConfigFromJson(config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("dense_layers names all layers")));
}

TEST(ReadHfConfig, TakesBothBiasesOfLlama) {
  json config = Config("llama");
  config["attention_bias"] = config["mlp_bias"] = true;
  ASSERT_OK_AND_ASSIGN(const HfConfig read, HfConfigFromJson(config));
  EXPECT_TRUE(read.model.add_bias_linear);
}

TEST(ReadHfConfig, RefusesValuesThatCannotBe) {
  const auto refused = [](const std::string& name, const std::string& key,
                          const json& value, const std::string& word) {
    EXPECT_THAT(ReadWith(name, key, value),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(key), HasSubstr(word))))
        << value;
  };
  for (const json& bad :
       {json(0), json(-1), json(64.0), json("64"), json(true), json::array(),
        json((int64_t{1} << 31) + 1), json(~uint64_t{0})}) {
    for (const char* key : {"hidden_size", "num_hidden_layers", "vocab_size",
                            "num_key_value_heads", "head_dim"}) {
      refused("llama", key, bad, "expected a whole number from 1 to");
    }
  }
  for (const json& bad : {json(0), json(-1e-6), json("1e-6"), json(true)}) {
    refused("llama", "rms_norm_eps", bad, "expected a number above 0");
  }
  refused("llama", "tie_word_embeddings", 0, "expected true or false");
  refused("llama", "hidden_act", "gelu", "expected silu");
  refused("llama", "dtype", 32, "expected a string");
  refused("gpt2", "activation_function", "relu", "expected gelu_new or gelu");
  refused("gpt2", "n_embd", 50, "a multiple of \"n_head\", 4");
  refused("mixtral", "num_attention_heads", 7, "7");
  refused("mixtral", "num_experts", 8, "\"num_local_experts\", 4");
  refused("llama", "num_key_value_heads", 3,
          "a divisor of \"num_attention_heads\", 8");
  refused("mixtral", "num_experts_per_tok", 5, "the experts there are, 4");
  json config = Config("llama");
  config.erase("hidden_size");
  EXPECT_THAT(HfConfigFromJson(config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the key \"hidden_size\" is missing")));
  EXPECT_FALSE(ParseHfConfig("[]").ok());
  EXPECT_THAT(ParseHfConfig(R"({"rms_norm_eps": NaN})"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("byte")));
  EXPECT_THAT(ParseHfConfig(R"({"a":1,"a":2})"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("twice")));
}

TEST(WriteHfConfig, IsReadAsTheSameModel) {
  for (const std::string& name : Models()) {
    SCOPED_TRACE(name);
    ASSERT_OK_AND_ASSIGN(const HfConfig config, HfConfigFromJson(Config(name)));
    ASSERT_OK_AND_ASSIGN(
        const json written,
        HfConfigFor(config.model, config.family, config.dtype));
    ASSERT_OK_AND_ASSIGN(const HfConfig read, HfConfigFromJson(written));
    EXPECT_EQ(read.model, config.model);
    EXPECT_EQ(read.family, config.family);
    EXPECT_EQ(read.dtype, config.dtype);
    ASSERT_OK_AND_ASSIGN(const HfFamily family, FamilyFor(config.model));
    EXPECT_EQ(family, config.family);
    // Keys have the values that transformers wrote.
    const json old = OldConfig(name);
    for (const auto& [key, value] : written.items()) {
      if (old.contains(key) && old[key] != value) {
        EXPECT_THAT(key, ::testing::AnyOf("n_inner", "sliding_window"));
      }
    }
  }
}

TEST(WriteHfConfig, RefusesWhatAFamilyHasNot) {
  const auto refused = [](ModelConfig model, HfFamily family,
                          const std::string& word) {
    EXPECT_THAT(
        HfConfigFor(model, family, ""),
        StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(word)));
  };
  ModelConfig model = LlamaModel();
  EXPECT_OK(HfConfigFor(model, HfFamily::kLlama, ""));
  model.qk_layernorm = true;
  refused(model, HfFamily::kLlama,
          "a llama model has qk_layernorm its default, this one true");
  refused(GptModel(), HfFamily::kLlama, "a llama model has");
  refused(LlamaModel(), HfFamily::kGpt2, "gpt2");
  refused(LlamaModel(), HfFamily::kMixtral, "mixtral");
  model = GptModel();
  model.position_embedding = PositionEmbedding::kRope;
  EXPECT_THAT(FamilyFor(model),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("no Hugging Face form"),
                             HasSubstr("a gpt2 model has "
                                       "position_embedding_type"))));
}

}  // namespace
}  // namespace shardshift::reshard
