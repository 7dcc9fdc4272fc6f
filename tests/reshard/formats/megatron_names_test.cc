// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/megatron_names.h"

#include <set>
#include <string>
#include <vector>

#include "reshard/formats/megatron_module.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/model_config.h"
#include "reshard/layout/model_map.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::ElementsAre;

ModelConfig Mixture() {
  ModelConfig model;
  model.num_layers = 2;
  model.hidden_size = 32;
  model.ffn_hidden_size = 64;
  model.num_attention_heads = 4;
  model.num_query_groups = 2;
  model.kv_channels = 8;
  model.vocab_size = 60;
  model.padded_vocab_size = 64;
  model.max_position_embeddings = 16;
  model.qk_layernorm = true;
  model.swiglu = true;
  model.add_bias_linear = false;
  model.untie_embeddings_and_output_weights = true;
  model.num_experts = 2;
  model.moe_ffn_hidden_size = 48;
  model.moe_shared_expert_intermediate_size = 16;
  model.moe_shared_expert_gate = true;
  return model;
}

TEST(MegatronNamesTest, NamesAreTakenApart) {
  EXPECT_EQ(TakeApart("layers.12.mlp.experts.3.fc1.weight"),
            (ParameterName{12, 3, "mlp.experts.fc1.weight"}));
  EXPECT_EQ(TakeApart("layers.0.attention.qkv.bias"),
            (ParameterName{0, -1, "attention.qkv.bias"}));
  EXPECT_EQ(TakeApart("output.weight"),
            (ParameterName{-1, -1, "output.weight"}));
}

TEST(MegatronNamesTest, BothImplementationsOfALayerAreKnown) {
  EXPECT_THAT(MegatronNames(TakeApart("layers.1.mlp_norm.weight")),
              ElementsAre("decoder.layers.1.mlp.linear_fc1.layer_norm_weight",
                          "decoder.layers.1.pre_mlp_layernorm.weight"));
  EXPECT_THAT(
      MegatronNames(TakeApart("layers.1.mlp.experts.4.fc2.weight")),
      ElementsAre(
          "decoder.layers.1.mlp.experts.linear_fc2.weight4",
          "decoder.layers.1.mlp.experts.local_experts.4.linear_fc2.weight"));
  EXPECT_THAT(MegatronNames(
                  TakeApart("layers.0.mlp.shared_experts.output_gate.weight")),
              ElementsAre("decoder.layers.0.mlp.shared_experts.gate_weight"));
}

// A parameter without a name would be reported as missing for ever.
TEST(MegatronNamesTest, EveryParameterHasNamesOfItsOwn) {
  std::set<std::string> names;
  for (const Parameter& parameter :
       ModelMap(Mixture(), Layout{}).MakeBuffer({}).parameters) {
    const std::vector<std::string> of_this =
        MegatronNames(TakeApart(parameter.name));
    EXPECT_FALSE(of_this.empty()) << parameter.name;
    for (const std::string& name : of_this) {
      EXPECT_TRUE(names.insert(name).second) << name;
    }
  }
}

int PlaceOf(const Module& module, const std::string& name) {
  for (size_t i = 0; i < module.parameters.size(); ++i) {
    if (module.parameters[i].name == name) return static_cast<int>(i);
  }
  ADD_FAILURE() << name << " is not there";
  return -1;
}

TEST(MegatronNamesTest, TheNormIsRegisteredFirstUnlessItIsFused) {
  const LocalBuffer buffer = ModelMap(Mixture(), Layout{}).MakeBuffer({});
  const Module fused = ModuleInOrder(
      buffer.parameters, {.fuses_norms = true, .groups_experts = false});
  const Module apart = ModuleInOrder(
      buffer.parameters, {.fuses_norms = false, .groups_experts = false});
  ASSERT_EQ(fused.parameters.size(), apart.parameters.size());
  for (const std::string layer : {"decoder.layers.0.", "decoder.layers.1."}) {
    const std::string proj = layer + "self_attention.linear_proj.weight";
    const std::string qkv = layer + "self_attention.linear_qkv.";
    EXPECT_GT(PlaceOf(fused, qkv + "layer_norm_weight"), PlaceOf(fused, proj));
    const int norm = PlaceOf(apart, layer + "input_layernorm.weight");
    EXPECT_EQ(norm + 1, PlaceOf(apart, layer + "input_layernorm.bias"));
    EXPECT_EQ(norm + 2, PlaceOf(apart, proj));
    // Of a mixture the norm before the experts is part of no projection.
    PlaceOf(fused, layer + "pre_mlp_layernorm.weight");
  }
}

TEST(MegatronNamesTest, GroupedExpertsHaveAllFirstMatricesFirst) {
  const LocalBuffer buffer = ModelMap(Mixture(), Layout{}).MakeBuffer({});
  const Module grouped = ModuleInOrder(
      buffer.parameters, {.fuses_norms = true, .groups_experts = true});
  const Module single = ModuleInOrder(
      buffer.parameters, {.fuses_norms = true, .groups_experts = false});
  ASSERT_EQ(grouped.parameters.size(), single.parameters.size());
  const std::string experts = "decoder.layers.1.mlp.experts.";
  const std::string local = experts + "local_experts.";
  EXPECT_LT(PlaceOf(grouped, experts + "linear_fc1.weight1"),
            PlaceOf(grouped, experts + "linear_fc2.weight0"));
  EXPECT_GT(PlaceOf(single, local + "1.linear_fc1.weight"),
            PlaceOf(single, local + "0.linear_fc2.weight"));
}

}  // namespace
}  // namespace shardshift::reshard
