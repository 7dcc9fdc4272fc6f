// Distributed checkpoints of models, against folders of the same values.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/dcp_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/export.h"
#include "reshard/formats/dcp_keys.h"
#include "reshard/formats/open_source.h"
#include "reshard/formats/plan_export.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/formats/dcp_model_sample.h"
#include "tests/reshard/formats/generic_sample.h"
#include "tests/reshard/formats/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using absl::StatusCode;
using ckpt::DType;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

TEST_F(DcpModelTest, WeightsOfEveryFamilyComeOut) {
  for (const std::string& model : Models()) {
    for (const char* prefix : {"", "model.", "app.model."}) {
      const SavedState weights = WeightsOf(model, 5);
      SavedState state;
      AddKeys(weights, prefix, "", state);
      WriteShards(state);
      WriteConfig(model);
      ASSERT_OK_AND_ASSIGN(const OpenedSource source, Open());
      EXPECT_EQ(source.format, Format::kDcp);
      EXPECT_TRUE(BytesOf(source) == LogicalTensorsOf(model, weights))
          << model << " " << prefix;
    }
  }
}

TEST_F(DcpModelTest, TrainingComesOut) {
  for (const std::string model : {"gpt2", "llama", "qwen3_moe"}) {
    WriteConfig(model);
    for (const auto& [prefix, state_prefix] :
         {std::pair{"model.", "optim.state."},
          {"", "state."},
          {"", "optim.state."},
          {"app.model.", "app.optim.state."},
          {"state_dict.model.", "optimizer_0.state.model."}}) {
      WriteShards(TrainingOf(model, prefix, state_prefix));
      ASSERT_OK_AND_ASSIGN(const OpenedSource source, Open());
      ExpectTraining(source, model);
      const json state = json::parse(source.reader->state());
      EXPECT_EQ(state["progress"]["step"], 10);
      EXPECT_EQ(state["progress"]["skipped_iterations"], 0);
      EXPECT_EQ(source.reader->table().step, 10);
      EXPECT_OK(ReadState(*source.reader));
    }
  }
}

TEST_F(DcpModelTest, WeightsOnlyLeavesTheOptimizerBehind) {
  WriteConfig("llama");
  SavedState state = TrainingOf("llama", "model.", "optim.state.");
  state["optim.state.model.norm.weight.max_exp_avg_sq"] = {{64}, 0};
  state["ema.decay"].first = 1;
  WriteShards(state);
  ASSERT_OK_AND_ASSIGN(const OpenedSource source, Open(/*weights_only=*/true));
  EXPECT_TRUE(BytesOf(source) ==
              LogicalTensorsOf("llama", WeightsOf("llama", 0)));
  EXPECT_THAT(source.left_out, Contains(HasSubstr("optimizer state")));
  EXPECT_THAT(source.left_out, Contains("tensor \"ema.decay\""));
}

TEST_F(DcpModelTest, TheConfigurationMayLieBesideIt) {
  std::filesystem::create_directories(Path("run"));
  ckpt::WriteFile(Path("run/shard-00001-model-00001-of-00001.safetensors"),
                  FileOf(WeightsOf("llama", 0), true,
                         [](const std::string&, const Saved& saved) {
                           return ckpt::WholeBox(saved.shape);
                         }));
  EXPECT_THAT(
      OpenSource(Path("run"), {}),
      StatusIs(StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("has a config.json"), HasSubstr("--generic"))));
  WriteConfig("llama");
  ASSERT_OK_AND_ASSIGN(const OpenedSource source, OpenSource(Path("run"), {}));
  EXPECT_TRUE(BytesOf(source) ==
              LogicalTensorsOf("llama", WeightsOf("llama", 0)));
  ckpt::WriteFile(Path("config.json"), "{}");
  EXPECT_THAT(OpenSource(Path("run"), {}),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("config.json")));
}

// A layer that is frozen has no state, which --generic keeps as it is.
TEST_F(DcpModelTest, B34StateIsThereForWhatIsTrainedAlone) {
  WriteConfig("llama");
  SavedState state = TrainingOf("llama", "model.", "optim.state.");
  const auto is_frozen = [](absl::string_view key) {
    return absl::StartsWith(key, "optim.state.model.layers.1.");
  };
  const size_t all = state.size();
  std::erase_if(state,
                [&](const auto& saved) { return is_frozen(saved.first); });
  ASSERT_EQ(state.size(), all - 3 * 9);
  WriteShards(state);
  EXPECT_THAT(
      Open(),
      StatusIs(StatusCode::kDataLoss,
               AllOf(HasSubstr("optim.state.model.layers.1."),
                     HasSubstr("others of the model have such a state"))));
  EXPECT_OK(Open(/*weights_only=*/true));
  ASSERT_OK_AND_ASSIGN(const OpenedSource source, OpenGeneric(dir_.path()));
  ASSERT_OK_AND_ASSIGN(const ExportPlan plan,
                       PlanExport(source, Format::kDcp, {.generic = true}));
  const ckpt::TempDir copies(ckpt::InMemory());
  const std::string copy = ckpt::JoinPath(copies.path(), "copy");
  ASSERT_OK(ExportCheckpoint(*source.reader, copy, plan, {}));
  ASSERT_OK_AND_ASSIGN(const OpenedSource copied, OpenGeneric(copy));
  const auto bytes = BytesOf(copied);
  EXPECT_EQ(bytes.size(), state.size());
  for (const auto& [key, saved] : state) {
    EXPECT_TRUE(bytes.at(key) == saved.Bytes(ckpt::WholeBox(saved.shape)))
        << key;
  }
}

// GPT-2's output layer is its embedding; either name may have the state.
TEST_F(DcpModelTest, B55TiedModelsMayHaveACopyOfTheirEmbedding) {
  WriteConfig("gpt2");
  SavedState state = TrainingOf("gpt2", "model.", "optim.state.");
  state["model.lm_head.weight"] = state.at("model.transformer.wte.weight");
  for (const char* what : {".exp_avg", ".exp_avg_sq", ".step"}) {
    auto moved =
        state.extract(absl::StrCat("optim.state.transformer.wte.weight", what));
    moved.key() = absl::StrCat("optim.state.lm_head.weight", what);
    state.insert(std::move(moved));
  }
  WriteShards(state);
  ASSERT_OK_AND_ASSIGN(const OpenedSource source, Open());
  ExpectTraining(source, "gpt2");
  state["model.lm_head.weight"].first += 1;
  WriteShards(state);
  EXPECT_THAT(Open(), StatusIs(StatusCode::kFailedPrecondition,
                               HasSubstr("lm_head.weight differs")));
}

class DcpModelRefusalTest : public DcpModelTest {
 protected:
  DcpModelRefusalTest() {
    WriteConfig("llama");
    state_ = TrainingOf("llama", "model.", "optim.state.");
  }

  void ExpectRefused(StatusCode code, const std::string& word,
                     const std::string& other = "") const {
    EXPECT_THAT(Open(),
                StatusIs(code, AllOf(HasSubstr(dir_.path()), HasSubstr(word),
                                     HasSubstr(other))));
  }

  SavedState state_;
};

constexpr char kNorm[] = "model.norm.weight";

TEST_F(DcpModelRefusalTest, B34StatesThatAreMissing) {
  for (const char* what : {".exp_avg", ".exp_avg_sq", ".step"}) {
    SavedState state = state_;
    const std::string key = absl::StrCat("optim.state.", kNorm, what);
    state.erase(key);
    WriteShards(state);
    ExpectRefused(StatusCode::kDataLoss, absl::StrCat("has no \"", key, "\""));
  }
}

TEST_F(DcpModelRefusalTest, StatesOfOtherOptimizersAndTensors) {
  const std::string extra =
      absl::StrCat("optim.state.", kNorm, ".max_exp_avg_sq");
  state_[extra] = {{64}, 0};
  WriteShards(state_);
  ExpectRefused(StatusCode::kFailedPrecondition, extra, "no state that AdamW");
  state_.erase(extra);
  state_["optim.state.model.other.exp_avg"] = {{64}, 0};
  WriteShards(state_);
  ExpectRefused(StatusCode::kFailedPrecondition, "model.other.exp_avg");
}

TEST_F(DcpModelRefusalTest, StatesByNumber) {
  std::erase_if(state_, [](const auto& entry) {
    return absl::StartsWith(entry.first, "optim.state.");
  });
  state_["optim.state.0.exp_avg"] = {{64}, 0};
  WriteShards(state_);
  ExpectRefused(StatusCode::kFailedPrecondition, "optim.state.0.exp_avg",
                "get_optimizer_state_dict");
  EXPECT_OK(Open(/*weights_only=*/true));
}

TEST_F(DcpModelRefusalTest, StepsThatDiffer) {
  const std::string key = absl::StrCat("optim.state.", kNorm, ".step");
  state_[key].first = 11;
  WriteShards(state_);
  ExpectRefused(StatusCode::kDataLoss, "10 steps", "11");
  state_[key].first = -1;
  WriteShards(state_);
  EXPECT_THAT(Open(), StatusIs(StatusCode::kDataLoss,
                               AllOf(HasSubstr(key), HasSubstr("-1 is no"))));
  state_[key] = {{2}, 10};
  WriteShards(state_);
  EXPECT_THAT(Open(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("number of steps")));
}

TEST_F(DcpModelRefusalTest, B35OtherDTypesAndShapes) {
  for (const std::string& key :
       {absl::StrCat("model.", kNorm),
        absl::StrCat("optim.state.", kNorm, ".exp_avg")}) {
    SavedState state = state_;
    state[key].dtype = DType::kBF16;
    WriteShards(state);
    ExpectRefused(StatusCode::kFailedPrecondition,
                  absl::StrCat("\"", key, "\" is BF16[64], expected F32[64]"),
                  "--weights-only");
    EXPECT_OK(Open(/*weights_only=*/true));
  }
  state_[absl::StrCat("optim.state.", kNorm, ".exp_avg")].shape = {63};
  WriteShards(state_);
  ExpectRefused(StatusCode::kFailedPrecondition,
                "is F32[63], expected F32[64]");
}

TEST_F(DcpModelRefusalTest, OtherModels) {
  SavedState more = state_;
  more["model.model.layers.4.x"] = {{64}, 0};
  WriteShards(more);
  ExpectRefused(StatusCode::kFailedPrecondition, "model.layers.4.x",
                "no part of a llama model");
  more = state_;
  more.erase(absl::StrCat("model.", kNorm));
  WriteShards(more);
  ExpectRefused(StatusCode::kFailedPrecondition, kNorm, "is missing");
  more = state_;
  AddKeys(WeightsOf("llama", 0), "ema.", "", more);
  WriteShards(more);
  ExpectRefused(StatusCode::kFailedPrecondition,
                "several models, below \"ema.\", \"model.\"");
  WriteConfig("gpt2");
  ExpectRefused(StatusCode::kFailedPrecondition,
                "no tensor is named transformer.wte.weight or wte.weight",
                "--generic");
}

TEST(DcpKeys, TheEmbeddingTells) {
  const auto find = [](const std::vector<absl::string_view>& keys) {
    return FindDcpKeys(keys, HfFamily::kGpt2);
  };
  ASSERT_OK_AND_ASSIGN(const DcpKeys keys,
                       find({"a.b.transformer.wte.weight",
                             "a.o.state.transformer.wte.weight."
                             "exp_avg",
                             "x.lm_head.weight.exp_avg"}));
  EXPECT_EQ(keys.model_prefix, "a.b.");
  EXPECT_EQ(keys.state_prefix, "a.o.state.");
  EXPECT_EQ(keys.OptimizerPrefix(), "a.o.");
  EXPECT_TRUE(keys.IsModel("a.b.x"));
  EXPECT_FALSE(keys.IsModel("a.x"));
  ASSERT_OK_AND_ASSIGN(const DcpKeys bare,
                       find({"wte.weight", "state.wte.weight.exp_avg"}));
  EXPECT_EQ(bare.model_prefix, "");
  EXPECT_EQ(bare.OptimizerPrefix(), "");
  EXPECT_TRUE(bare.IsModel("x"));
  EXPECT_FALSE(bare.IsModel("state.x"));
  // No part of a path.
  EXPECT_THAT(find({"xwte.weight"}), StatusIs(StatusCode::kFailedPrecondition,
                                              HasSubstr("no tensor")));
  EXPECT_THAT(find({"wte.weight", "a.state.wte.weight.exp_avg",
                    "b.state.wte.weight.exp_avg"}),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("\"a.state.\", \"b.state.\"")));
}

}  // namespace
}  // namespace shardshift::reshard
