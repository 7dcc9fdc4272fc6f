// What torch_dist has that Megatron's other format has not: who writes what,
// under which key, and the common state. That it all comes back:
// megatron_export_test.cc.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/torch_dist_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "reshard/exec/export.h"
#include "reshard/exec/synth.h"
#include "reshard/formats/dcp_metadata.h"
#include "reshard/formats/open_source.h"
#include "reshard/formats/pickle_json.h"
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
  absl::StatusOr<OpenedSource> Reopen(const std::string& name) {
    OpenOptions options;
    options.verify = true;
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
  EXPECT_EQ(files["./latest_checkpointed_iteration.txt"], "3");
  EXPECT_THAT(files["iter_0000003/metadata.json"],
              HasSubstr("\"sharded_backend\": \"torch_dist\""));
}

// Experts are cut over other ranks than the rest.
TEST_F(TorchDistExportTest, ExpertsHaveRanksOfTheirOwn) {
  const OpenedSource source = Source("run", MixtureModel());
  ExportChoice choice;
  choice.layout = {.tensor = 2,
                   .data = 2,
                   .distributed_optimizer = true,
                   .expert = 4,
                   .expert_tensor = 1};
  ASSERT_OK(Export(source, "to", choice));
  ASSERT_OK_AND_ASSIGN(const OpenedSource read, Reopen("to"));
  EXPECT_EQ(BytesOf(read), BytesOf(source));
  const auto chunks =
      ChunksOf("to", "decoder.layers.mlp.experts.experts.linear_fc2.weight");
  EXPECT_EQ(chunks.size(), 16U);
  EXPECT_THAT(chunks, ::testing::Contains("__3_0.distcp [1:2,3:4,0:16,0:8]"));
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

// As torch.load gives it.
class TorchDistCommonTest : public TorchDistExportTest {
 protected:
  void Write(const ModelConfig& model, const Layout& layout, DType dtype) {
    const OpenedSource source = Source("run", model);
    ExportChoice choice;
    choice.layout = layout;
    choice.choice.dtype = dtype;
    ASSERT_OK(Export(source, "to", choice));
    auto file = ckpt::File::OpenForRead(Path("to/iter_0000003/common.pt"));
    ASSERT_OK(file);
    auto torch = TorchFile::Read(*file);
    ASSERT_OK(torch);
    torch_.emplace(*std::move(torch));
    const auto json = PickleToJson(torch_->root().Get("optimizer").value());
    if (json.ok()) optimizer_ = *json;
    content_ =
        PickleToJson(torch_->root().Get("content_metadata").value()).value();
  }

  std::optional<TorchFile> torch_;
  nlohmann::json optimizer_;  // null if there is a tensor in it
  nlohmann::json content_;
};

TEST_F(TorchDistCommonTest, OfADistributedOptimizer) {
  Write(GptModel(), {.distributed_optimizer = true}, DType::kBF16);
  EXPECT_EQ(optimizer_["param_state_sharding_type"], "fully_reshardable");
  const nlohmann::json& groups = optimizer_["optimizer"]["param_groups"];
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0]["wd_mult"], 1.0);
  EXPECT_EQ(groups[1]["wd_mult"], 0.0);
  EXPECT_EQ(groups[1]["step"], 3);
  EXPECT_EQ(content_["distrib_optim_sharding_type"], "fully_reshardable");
  EXPECT_EQ(content_["chained_optim_avoid_prefix"], true);
}

TEST_F(TorchDistCommonTest, ExpertsAreALinkOfTheirOwnInAChain) {
  Write(MixtureModel(), {.data = 2, .expert = 2}, DType::kBF16);
  ASSERT_EQ(optimizer_["py"], "dict");  // its keys are numbers
  const nlohmann::json& links = optimizer_["items"];
  ASSERT_EQ(links.size(), 2U);
  EXPECT_EQ(links[0][0], 0);
  EXPECT_EQ(links[0][1]["optimizer"]["param_groups"].size(), 2U);
  const nlohmann::json& groups = links[1][1]["optimizer"]["param_groups"];
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0]["is_expert_parallel"], true);
  EXPECT_FALSE(content_.contains("distrib_optim_sharding_type"));
}

TEST_F(TorchDistCommonTest, WithoutMastersNothingIsAroundTheOptimizer) {
  Write(GptModel(), {}, DType::kF32);
  EXPECT_TRUE(optimizer_.contains("param_groups"));
  EXPECT_TRUE(optimizer_.contains("state"));
}

}  // namespace
}  // namespace shardshift::reshard
