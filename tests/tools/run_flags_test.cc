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

}  // namespace
}  // namespace shardshift
