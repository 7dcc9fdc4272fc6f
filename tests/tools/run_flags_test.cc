// SPDX-License-Identifier: Apache-2.0
#include "tools/run_flags.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tools/cli.h"

namespace shardshift {
namespace {

RunFlags Parse(std::vector<std::string> arguments,
               FlagScope scope = FlagScope::kTrain) {
  RunFlags flags;
  const std::unique_ptr<CLI::App> app = MakeCli("program", "For a test.");
  AddRunFlags(*app, flags, scope);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 wants it so
  app->parse(arguments);
  return flags;
}

// A resumed run takes the checkpoint's value only for a flag that is empty.
TEST(RunFlags, StayEmptyUnlessGiven) {
  const RunFlags flags = Parse({});
  EXPECT_FALSE(flags.layout.tensor.has_value());
  EXPECT_FALSE(flags.layout.distributed_optimizer.has_value());
  EXPECT_FALSE(flags.model.group_query_attention.has_value());
  EXPECT_FALSE(flags.model.swiglu.has_value());
  EXPECT_FALSE(flags.model.disable_bias_linear.has_value());
  EXPECT_FALSE(flags.model.add_qkv_bias.has_value());
  EXPECT_FALSE(flags.model.untie_embeddings.has_value());
  EXPECT_FALSE(flags.lr.has_value());
  EXPECT_FALSE(flags.seed.has_value());
}

TEST(RunFlags, TurnSwitchesOnAndOff) {
  EXPECT_EQ(Parse({"--swiglu"}).model.swiglu, true);
  EXPECT_EQ(Parse({"--no-swiglu"}).model.swiglu, false);
  EXPECT_EQ(Parse({"--swiglu", "--no-swiglu"}).model.swiglu, false);
  EXPECT_EQ(Parse({"--no-swiglu", "--swiglu"}).model.swiglu, true);
  EXPECT_EQ(Parse({"--swiglu", "--swiglu"}).model.swiglu, true);
}

TEST(RunFlags, HaveTheShortNamesOfTheLayout) {
  const RunFlags flags = Parse({"--tp", "2", "--pp=3", "--dp", "4"});
  EXPECT_EQ(flags.layout.tensor, 2);
  EXPECT_EQ(flags.layout.pipeline, 3);
  EXPECT_EQ(flags.layout.data, 4);
}

const std::vector<std::string>& StageFlags() {
  static const auto& flags =
      *new std::vector<std::string>{"--num-layers-per-virtual-pipeline-stage=2",
                                    "--num-virtual-stages-per-pipeline-rank=2",
                                    "--decoder-first-pipeline-num-layers=2",
                                    "--decoder-last-pipeline-num-layers=2",
                                    "--account-for-embedding-in-pipeline-split",
                                    "--account-for-loss-in-pipeline-split",
                                    "--pipeline-model-parallel-layout=Ett|tL"};
  return flags;
}

const std::vector<std::string>& ExpertFlags() {
  static const auto& flags =
      *new std::vector<std::string>{"--ep=2",
                                    "--expert-model-parallel-size=2",
                                    "--etp=2",
                                    "--expert-tensor-parallel-size=2",
                                    "--num-experts=2",
                                    "--moe-ffn-hidden-size=2",
                                    "--moe-router-topk=2",
                                    "--moe-router-pre-softmax",
                                    "--moe-shared-expert-intermediate-size=2",
                                    "--moe-shared-expert-gate"};
  return flags;
}

TEST(RunFlags, KnowTheLossesOfRoutersWhereThereIsTraining) {
  const std::vector<std::string> flags = {
      "--moe-router-load-balancing-type=load_balancing_loss",
      "--moe-aux-loss-coeff=0.01", "--moe-z-loss-coeff=0.001"};
  EXPECT_EQ(Parse(flags).moe_aux_loss_coeff, 0.01);
  EXPECT_EQ(Parse(flags).moe_z_loss_coeff, 0.001);
  for (const std::string& flag : flags) {
    EXPECT_THROW(Parse({flag}, FlagScope::kCheckpoints), CLI::ExtrasError);
  }
  EXPECT_THROW(Parse({"--moe-router-load-balancing-type=aux_loss"}),
               CLI::ParseError);
}

TEST(RunFlags, MakeALayoutWithAllItsAxes) {
  const RunFlags experts = Parse(ExpertFlags());
  EXPECT_EQ(ApplyLayout(experts.layout, {.tensor = 4, .expert = 3}),
            (reshard::Layout{.tensor = 4, .expert = 2, .expert_tensor = 2}));
  const RunFlags stages = Parse(StageFlags());
  const reshard::Layout layout = ApplyLayout(stages.layout, {.tensor = 4});
  reshard::Layout expected = {.tensor = 4};
  expected.layers_per_virtual_stage = expected.virtual_stages = 2;
  expected.first_stage_layers = expected.last_stage_layers = 2;
  expected.account_for_embedding = expected.account_for_loss = true;
  expected.stage_layers = {2, 1};
  EXPECT_EQ(layout, expected);
}

TEST(RunFlags, TakeAWindowAsMegatronHasIt) {
  EXPECT_EQ(Parse({"--window-size", "4095,0"}).model.sliding_window, 4096);
  EXPECT_EQ(Parse({"--window-size=(7, 0)"}).model.sliding_window, 8);
  EXPECT_EQ(Parse({"--window-size", "-1,0"}).model.sliding_window, 0);
  for (const char* other : {"8", "8,8", "8,-1", "-2,0", "x,0", "8,0,0", ""}) {
    EXPECT_THROW(Parse({std::string("--window-size=") + other}),
                 CLI::ParseError)
        << other;
  }
}

TEST(RunFlags, RefuseAListOfStagesThatIsNone) {
  EXPECT_THROW(Parse({"--pipeline-model-parallel-layout=Ett|x"},
                     FlagScope::kCheckpoints),
               CLI::ValidationError);
}

}  // namespace
}  // namespace shardshift
