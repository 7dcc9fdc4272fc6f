// Kinds of fault that bit users of other tools, on whole checkpoints; the
// numbers are those of the collection that the project works from. Those of
// layouts alone: layout/bug_kinds_test.cc.
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/reshard.h"
#include "reshard/exec/synth.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/owner_oracle.h"
#include "tests/reshard/sample.h"
#include "tests/reshard/tensor_oracle.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

Layout DataShards(int64_t data) {
  return {.data = data, .distributed_optimizer = true};
}

class BugKindsOfReshards : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const {
    return ckpt::JoinPath(directory_.path(), name);
  }

  // Saves on the first layout and reshards from each to the next; every
  // element of every role must have its value and an owner that wrote it.
  void GoAlong(const ModelConfig& model, const std::vector<Layout>& layouts) {
    const std::string prefix = absl::StrCat("way-", ways_++, "-");
    ASSERT_OK(WriteSynth(Path(prefix + "0"), model, layouts[0]));
    for (size_t i = 1; i < layouts.size(); ++i) {
      SCOPED_TRACE(
          absl::StrCat(ToString(layouts[i - 1]), " -> ", ToString(layouts[i])));
      ASSERT_OK_AND_ASSIGN(
          const auto source,
          ckpt::Reader::Open(StepOf(Path(absl::StrCat(prefix, i - 1)))));
      last_ = Path(absl::StrCat(prefix, i));
      ASSERT_OK_AND_ASSIGN(const ReshardReport report,
                           ReshardCheckpoint(*source, last_, layouts[i], {}));
      EXPECT_OK(report.proof);
      ASSERT_OK_AND_ASSIGN(const auto made, ckpt::Reader::Open(StepOf(last_)));
      ExpectSynthTensors(*made, model);
      ExpectPartsOfOwners(*made, model, layouts[i]);
    }
  }

  const ckpt::TempDir directory_;
  int ways_ = 0;
  std::string last_;  // run directory that the last way ended in
};

// Pieces of gate and up must not change places, however the rows are cut.
TEST_F(BugKindsOfReshards, B03DataShardsOfAGatedMatrixComeTogetherInOrder) {
  ModelConfig model = LlamaModel();
  model.num_layers = 1;
  model.ffn_hidden_size = 8;  // fc1 has 16 rows
  GoAlong(model, {DataShards(8),
                  {},
                  DataShards(2),
                  DataShards(8),
                  DataShards(4),
                  {.tensor = 2}});
}

TEST_F(BugKindsOfReshards, B08BiasesOfRowParallelLayersAreStoredOnceAndWhole) {
  const std::vector<Layout> layouts = {{.tensor = 4}, {}, {.tensor = 2}};
  GoAlong(GptModel(), layouts);
  ASSERT_OK_AND_ASSIGN(const auto reader, ckpt::Reader::Open(StepOf(last_)));
  for (const char* name :
       {"layers.0.attention.proj.bias", "layers.3.mlp.down.bias"}) {
    ASSERT_OK_AND_ASSIGN(const int64_t tensor,
                         reader->FindTensor(name, "master"));
    ASSERT_EQ(reader->Fragments(tensor).size(), 1);
    std::vector<float> bias(16);
    ASSERT_OK(reader->ReadTensor(tensor, {{0}, {16}},
                                 reinterpret_cast<std::byte*>(bias.data())));
    for (int64_t i = 0; i < 16; ++i) {
      EXPECT_EQ(bias[i], SynthValue(name, "master", i));
    }
  }
}

TEST_F(BugKindsOfReshards, B10TwelveAndAHundredShardsKeepTheirOrder) {
  ModelConfig model = LlamaModel();
  model.num_layers = 1;
  GoAlong(model, {DataShards(12), {}, DataShards(101), {.tensor = 2}});
}

// An index that was made anew from the parts knows no layout.
TEST_F(BugKindsOfReshards, B21NothingOfTheWritersLayoutIsNeeded) {
  const ModelConfig model = LlamaModel();
  ASSERT_OK(WriteSynthCheckpoint(
      Path("unknown"), 3, model,
      {.tensor = 2, .pipeline = 2, .data = 2, .distributed_optimizer = true},
      SampleState(model), nlohmann::json::object()));
  ASSERT_OK_AND_ASSIGN(const auto source,
                       ckpt::Reader::Open(StepOf(Path("unknown"))));
  ASSERT_OK_AND_ASSIGN(
      const ReshardReport report,
      ReshardCheckpoint(*source, Path("one"), DataShards(3), {}));
  EXPECT_EQ(report.from, std::nullopt);
  ASSERT_OK_AND_ASSIGN(const auto made,
                       ckpt::Reader::Open(StepOf(Path("one"))));
  ExpectSynthTensors(*made, model);
}

// More shards than elements of a role, nearly all of them padding.
TEST_F(BugKindsOfReshards, B16AndB25RanksOfNothingButPaddingHaveNoPart) {
  ModelConfig model = LlamaModel();
  model.num_layers = 1;
  model.hidden_size = model.ffn_hidden_size = model.kv_channels = 2;
  model.num_attention_heads = model.num_query_groups = 1;
  model.vocab_size = 1;
  model.padded_vocab_size = 256;
  GoAlong(model, {DataShards(8), DataShards(64), {}, DataShards(64)});
  ASSERT_OK_AND_ASSIGN(const auto made, ckpt::Reader::Open(StepOf(last_)));
  EXPECT_LT(made->table().parts.size(), 64);
}

// A large matrix beside vectors of two elements.
TEST_F(BugKindsOfReshards, B30AndB36AndB37AnyDataSizeFollowsAnyOther) {
  ModelConfig model = GptModel();
  model.num_layers = 1;
  model.hidden_size = 2;
  model.vocab_size = model.padded_vocab_size = 1000;
  GoAlong(model, {DataShards(4), DataShards(6), DataShards(1), DataShards(3),
                  DataShards(8), DataShards(4), DataShards(3), DataShards(2)});
}

TEST_F(BugKindsOfReshards, B31TheBytesAreTheSameEveryTime) {
  const ModelConfig model = MixtureModel();
  const Layout to = {.data = 4, .distributed_optimizer = true, .expert = 2};
  ASSERT_OK(WriteSynth(Path("source"), model, {.tensor = 2, .pipeline = 2}));
  ASSERT_OK(WriteSynth(Path("saved"), model, to));
  ASSERT_OK_AND_ASSIGN(const auto source,
                       ckpt::Reader::Open(StepOf(Path("source"))));
  const auto saved = Snapshot(Path("saved"));
  for (int64_t i = 0; i < 10; ++i) {
    const std::string out = Path(absl::StrCat(i));
    ASSERT_OK(
        ReshardCheckpoint(*source, out, to, {.memory_bytes = 30'000 << i}));
    EXPECT_TRUE(Snapshot(out) == saved) << i;
  }
}

// Expert and dense state are apart, in buffers of their own, by name.
TEST_F(BugKindsOfReshards, B40AndB60AndB62AndB67ExpertsKeepNumberAndState) {
  ModelConfig model = MixtureModel();
  GoAlong(model, {{.pipeline = 4},
                  {.data = 4, .expert = 4},
                  {.data = 2, .distributed_optimizer = true, .expert = 2},
                  {},
                  {.data = 4, .distributed_optimizer = true, .expert = 4}});
}

// Expert tensor parallelism other than tensor parallelism, without EP.
TEST_F(BugKindsOfReshards, B65ExpertsAreSuchWithoutExpertParallelism) {
  GoAlong(MixtureModel(),
          {{.tensor = 2,
            .data = 2,
            .distributed_optimizer = true,
            .expert_tensor = 1},
           {.data = 4, .distributed_optimizer = true, .expert_tensor = 2},
           {.tensor = 2, .data = 2},
           {.tensor = 2, .expert_tensor = 1}});
}

TEST_F(BugKindsOfReshards, B63AndB64ARoutersBiasKeepsItsBits) {
  ModelConfig model = MixtureModel();
  model.moe_shared_expert_intermediate_size = 0;
  model.moe_shared_expert_gate = false;
  model.add_bias_linear = true;
  GoAlong(model, {{.tensor = 2, .pipeline = 2},
                  {.data = 4, .distributed_optimizer = true, .expert = 2},
                  {}});
  ASSERT_OK_AND_ASSIGN(const auto made, ckpt::Reader::Open(StepOf(last_)));
  int64_t biases = 0;
  for (const ckpt::Tensor& tensor : made->table().tensors) {
    if (absl::EndsWith(tensor.name, ".router.bias")) {
      EXPECT_EQ(tensor.dtype, ckpt::DType::kF32);
      ++biases;
    }
  }
  EXPECT_EQ(biases, 4 * 3);
}

// Counters, schedule and whatever else a state tells: text that nobody reads.
TEST_F(BugKindsOfReshards, B27AndB41AndB68AllOfTheStateComesAlong) {
  const ModelConfig model = GptModel();
  nlohmann::json state = SampleState(model);
  state["optimizer"] = {{"step", 1234567890123}, {"lr", 6e-4}};
  state["schedule"] = {{"decay_steps", 20}, {"min_lr", 0.1}};
  state["other"] = "unknown to reshard";
  ASSERT_OK(WriteSynthCheckpoint(Path("source"), 3, model, {.tensor = 2}, state,
                                 SampleRecord({.tensor = 2})));
  ASSERT_OK_AND_ASSIGN(const auto source,
                       ckpt::Reader::Open(StepOf(Path("source"))));
  ASSERT_OK(ReshardCheckpoint(*source, Path("out"), DataShards(3), {}));
  ASSERT_OK_AND_ASSIGN(const auto made,
                       ckpt::Reader::Open(StepOf(Path("out"))));
  EXPECT_EQ(made->state(), StateText(state));
}

}  // namespace
}  // namespace shardshift::reshard
