// What is written as torch_dist is read again as the same values, and lies
// there as Megatron wants it.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/torch_dist_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "reshard/exec/export.h"
#include "reshard/exec/synth.h"
#include "reshard/formats/dcp_metadata.h"
#include "reshard/formats/open_source.h"
#include "reshard/formats/plan_export.h"
#include "reshard/formats/torch_file.h"
#include "reshard/layout/layout.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/formats/generic_sample.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ckpt::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TorchDistExportTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const {
    return ckpt::JoinPath(directory_.path(), name);
  }

  // A checkpoint of ours.
  OpenedSource Source(const std::string& name, const ModelConfig& model,
                      const Layout& layout = {}) {
    nlohmann::json state = SampleState(model);
    state["progress"] = {{"step", 3}, {"consumed_samples", 24}};
    EXPECT_OK(WriteSynthCheckpoint(Path(name), 3, model, layout, state,
                                   SampleRecord(layout)));
    return *OpenSource(StepOf(Path(name)), {});
  }

  absl::Status Export(const OpenedSource& source, const std::string& to,
                      const ExportChoice& choice) {
    SS_ASSIGN_OR_RETURN(const ExportPlan plan,
                        PlanExport(source, Format::kTorchDist, choice));
    SS_ASSIGN_OR_RETURN(const ReshardReport report,
                        ExportCheckpoint(*source.reader, Path(to), plan,
                                         {.memory_bytes = int64_t{1} << 20}));
    EXPECT_TRUE(report.proof.ok());
    return absl::OkStatus();
  }

  // With all checksums of it.
  absl::StatusOr<OpenedSource> Reopen(const std::string& name,
                                      bool weights_only = false) {
    OpenOptions options;
    options.verify = true;
    options.foreign.weights_only = weights_only;
    return OpenSource(Path(name), options);
  }

  DcpMetadata MetadataOf(const std::string& name) {
    auto metadata = ReadDcpMetadata(Path(name) + "/iter_0000003");
    EXPECT_OK(metadata);
    return *std::move(metadata);
  }

  std::vector<std::string> ChunksOf(const std::string& name,
                                    const std::string& key) {
    const DcpMetadata metadata = MetadataOf(name);
    const DcpTensor* tensor = metadata.FindTensor(key);
    if (tensor == nullptr) return {};
    std::vector<std::string> chunks;
    for (const DcpChunk& chunk : tensor->chunks) {
      chunks.push_back(absl::StrCat(metadata.files[chunk.place.file], " ",
                                    ckpt::ToString(chunk.box)));
    }
    return chunks;
  }

  const ckpt::TempDir directory_;
};

TEST_F(TorchDistExportTest, IsReadAsWhatWasWritten) {
  struct Case {
    ModelConfig model;
    Layout layout;
  };
  const std::vector<Case> cases = {
      {LlamaModel(), {}},
      {LlamaModel(), {.tensor = 4, .pipeline = 2}},
      {LlamaModel(),
       {.tensor = 2, .pipeline = 2, .data = 2, .distributed_optimizer = true}},
      {GptModel(), {.tensor = 2, .pipeline = 4}},
      {GptModel(), {.pipeline = 2, .virtual_stages = 2}},
      {MixtureModel(), {.data = 4, .expert = 2}},
      {MixtureModel(),
       {.tensor = 2,
        .data = 2,
        .distributed_optimizer = true,
        .expert = 4,
        .expert_tensor = 1}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(ToString(cases[i].layout));
    const OpenedSource source =
        Source(absl::StrCat("run", i), cases[i].model, {.tensor = 2});
    const std::string to = absl::StrCat("to", i);
    ExportChoice choice;
    choice.layout = cases[i].layout;
    ASSERT_OK(Export(source, to, choice));
    ASSERT_OK_AND_ASSIGN(const OpenedSource read, Reopen(to));
    EXPECT_EQ(read.format, Format::kTorchDist);
    EXPECT_EQ(read.reader->step(), 3);
    EXPECT_EQ(BytesOf(read), BytesOf(source));
  }
}

TEST_F(TorchDistExportTest, AnyModelOnAnyLayout) {
  std::mt19937 random(11);
  for (int round = 0; round < 12; ++round) {
    const ModelConfig model =
        round % 2 == 0 ? RandomModel(random) : RandomMixture(random);
    const OpenedSource source = Source(absl::StrCat("run", round), model,
                                       RandomWideLayout(model, random));
    ExportChoice choice;
    choice.layout = RandomWideLayout(model, random);
    SCOPED_TRACE(ToString(choice.layout));
    const std::string to = absl::StrCat("to", round);
    const absl::Status status = Export(source, to, choice);
    // Arguments of Megatron's do not tell stages one by one.
    if (!choice.layout.stage_layers.empty()) {
      EXPECT_THAT(status,
                  StatusIs(absl::StatusCode::kUnimplemented,
                           HasSubstr("pipeline-model-parallel-layout")));
      continue;
    }
    ASSERT_OK(status);
    ASSERT_OK_AND_ASSIGN(const OpenedSource read, Reopen(to));
    EXPECT_EQ(BytesOf(read), BytesOf(source));
  }
}

TEST_F(TorchDistExportTest, SameStateGivesTheSameBytes) {
  const Layout wide = {.tensor = 2, .pipeline = 2, .data = 2};
  const OpenedSource one = Source("one", LlamaModel());
  const OpenedSource other = Source("other", LlamaModel(), wide);
  ExportChoice choice;
  choice.layout = {.tensor = 2, .pipeline = 2};
  ASSERT_OK(Export(one, "from_one", choice));
  ASSERT_OK(Export(other, "from_other", choice));
  EXPECT_EQ(Snapshot(Path("from_one")), Snapshot(Path("from_other")));
}

TEST_F(TorchDistExportTest, WeightsAreTheRoundedMasters) {
  const OpenedSource source = Source("run", GptModel());
  ExportChoice choice;
  choice.choice.dtype = DType::kBF16;
  ASSERT_OK(Export(source, "all", choice));
  choice.choice.weights_only = true;
  ASSERT_OK(Export(source, "weights", choice));
  ASSERT_OK_AND_ASSIGN(const OpenedSource of_all, Reopen("all", true));
  ASSERT_OK_AND_ASSIGN(const OpenedSource weights, Reopen("weights"));
  EXPECT_EQ(BytesOf(of_all), BytesOf(weights));
  const auto& tensors = weights.reader->table().tensors;
  EXPECT_TRUE(std::all_of(tensors.begin(), tensors.end(), [](const auto& t) {
    return t.role == "weight" && t.dtype == DType::kBF16;
  }));
  for (const DcpTensor& tensor : MetadataOf("weights").tensors) {
    EXPECT_FALSE(absl::StartsWith(tensor.fqn, "optimizer")) << tensor.fqn;
  }
}

TEST_F(TorchDistExportTest, ChunksLieWithTheRanksThatHaveThem) {
  const OpenedSource source = Source("run", LlamaModel());
  ExportChoice choice;
  choice.layout = {
      .tensor = 2, .pipeline = 2, .data = 2, .distributed_optimizer = true};
  ASSERT_OK(Export(source, "to", choice));
  EXPECT_THAT(
      ChunksOf("to", "decoder.layers.self_attention.linear_proj.weight"),
      ElementsAre("__0_0.distcp [0:1,0:16,0:8]", "__0_0.distcp [1:2,0:16,0:8]",
                  "__1_0.distcp [0:1,0:16,8:16]",
                  "__1_0.distcp [1:2,0:16,8:16]", "__4_0.distcp [2:3,0:16,0:8]",
                  "__4_0.distcp [3:4,0:16,0:8]", "__5_0.distcp [2:3,0:16,8:16]",
                  "__5_0.distcp [3:4,0:16,8:16]"));
  // Padded to a multiple of 128 times TP, as Megatron does.
  EXPECT_THAT(
      ChunksOf("to", "optimizer.state.param.output_layer.weight"),
      ElementsAre("__4_0.distcp [0:128,0:16]", "__5_0.distcp [128:256,0:16]"));
  EXPECT_THAT(ChunksOf("to", "decoder.final_layernorm.weight"),
              ElementsAre("__4_0.distcp [0:16]"));
  EXPECT_EQ(ChunksOf("to", "decoder.layers.mlp.linear_fc1.weight").size(), 16U);
  std::map<std::string, std::string> files = Snapshot(Path("to"));
  EXPECT_EQ(files["latest_checkpointed_iteration.txt"], "3");
  EXPECT_THAT(files["iter_0000003/metadata.json"],
              HasSubstr("\"sharded_backend\": \"torch_dist\""));
}

// Replicas of the embedding, and of what all tensor ranks have, are left out.
TEST_F(TorchDistExportTest, TiedWeightsAreThereOnce) {
  const OpenedSource source = Source("run", GptModel());
  ExportChoice choice;
  choice.layout = {.tensor = 2, .pipeline = 2};
  ASSERT_OK(Export(source, "to", choice));
  const std::string key = "embedding.word_embeddings.weight";
  EXPECT_EQ(ChunksOf("to", key).size(), 2U);
  EXPECT_THAT(ChunksOf("to", "output_layer.weight"), ElementsAre());
  EXPECT_EQ(ChunksOf("to", "embedding.position_embeddings.weight").size(), 1U);
}

TEST_F(TorchDistExportTest, MastersBearTheNameOfTheOptimizer) {
  const OpenedSource source = Source("run", GptModel());
  const std::string key = "decoder.final_layernorm.weight";
  const auto is_there = [&](const std::string& name, const char* prefix) {
    return !ChunksOf(name, prefix + key).empty();
  };
  ExportChoice choice;
  choice.choice.dtype = DType::kBF16;
  ASSERT_OK(Export(source, "plain", choice));
  EXPECT_TRUE(is_there("plain", "optimizer.state.fp32_param."));
  EXPECT_FALSE(is_there("plain", "optimizer.state.param."));
  choice.choice.dtype = DType::kF32;
  ASSERT_OK(Export(source, "plain32", choice));
  EXPECT_FALSE(is_there("plain32", "optimizer.state.fp32_param."));
  choice.layout.distributed_optimizer = true;
  ASSERT_OK(Export(source, "distributed", choice));
  EXPECT_TRUE(is_there("distributed", "optimizer.state.param."));
  for (const char* name : {"plain", "plain32", "distributed"}) {
    EXPECT_TRUE(is_there(name, "optimizer.state.exp_avg."));
    EXPECT_TRUE(is_there(name, "optimizer.state.exp_avg_sq."));
    ASSERT_OK_AND_ASSIGN(const OpenedSource read, Reopen(name));
    EXPECT_EQ(BytesOf(read), BytesOf(source));
  }
}

TEST_F(TorchDistExportTest, APartIsNoModel) {
  const OpenedSource source = Source("run", GptModel());
  ExportChoice choice;
  choice.choice.select = "layers.*";
  EXPECT_THAT(
      Export(source, "to", choice),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--select")));
}

}  // namespace
}  // namespace shardshift::reshard
