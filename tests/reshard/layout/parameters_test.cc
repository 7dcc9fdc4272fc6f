// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/parameters.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/reshard/oracle.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Names(const std::vector<Parameter>& parameters) {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters) names.push_back(parameter.name);
  return names;
}

Parameter Find(const std::vector<Parameter>& parameters,
               const std::string& name) {
  const auto it =
      std::find_if(parameters.begin(), parameters.end(),
                   [&name](const Parameter& p) { return p.name == name; });
  EXPECT_NE(it, parameters.end()) << name;
  return it == parameters.end() ? Parameter{} : *it;
}

// "k[4:8]" for each piece: its tensor's last word but one, and its rows.
std::vector<std::string> RowsOfPieces(const ModelConfig& model,
                                      const Parameter& parameter) {
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  std::vector<std::string> rows;
  for (const Piece& piece : parameter.pieces) {
    std::string name = tensors[piece.tensor].name;
    name = name.substr(0, name.rfind('.'));
    name = name.substr(name.rfind('.') + 1);
    rows.push_back(name + ckpt::ToString(ckpt::Box{{piece.box.start[0]},
                                                   {piece.box.extent[0]}}));
  }
  return rows;
}

// parallel-layout.md 4.6: 8 heads, 2 groups, head width 4.
ModelConfig QkvExample() {
  ModelConfig model = LlamaModel();
  model.num_attention_heads = 8;
  model.num_query_groups = 2;
  model.kv_channels = 4;
  model.add_qkv_bias = true;
  return model;
}

std::vector<std::string> QkvRows(const char* kind, int64_t ranks,
                                 int64_t rank) {
  const ModelConfig model = QkvExample();
  return RowsOfPieces(model,
                      Find(LocalParameters(model, {.tensor = ranks}, rank, 0),
                           std::string("layers.0.attention.qkv.") + kind));
}

TEST(FusedQkv, RunsGroupByGroup) {
  for (const char* kind : {"weight", "bias"}) {
    EXPECT_THAT(QkvRows(kind, 1, 0),
                ElementsAre("q[0:16]", "k[0:4]", "v[0:4]", "q[16:32]", "k[4:8]",
                            "v[4:8]"));
    EXPECT_THAT(QkvRows(kind, 2, 1),
                ElementsAre("q[16:32]", "k[4:8]", "v[4:8]"));
  }
}

TEST(FusedQkv, IsCutOffTheGroupBordersWithFewerGroupsThanRanks) {
  for (const char* kind : {"weight", "bias"}) {
    EXPECT_THAT(QkvRows(kind, 4, 0), ElementsAre("q[0:12]"));
    EXPECT_THAT(QkvRows(kind, 4, 1),
                ElementsAre("q[12:16]", "k[0:4]", "v[0:4]"));
    // Fused rows 36 to 47.
    EXPECT_THAT(QkvRows(kind, 4, 3),
                ElementsAre("q[28:32]", "k[4:8]", "v[4:8]"));
    // 6 rows a rank: inside a head.
    EXPECT_THAT(QkvRows(kind, 8, 2), ElementsAre("q[12:16]", "k[0:2]"));
    EXPECT_THAT(QkvRows(kind, 8, 3), ElementsAre("k[2:4]", "v[0:4]"));
  }
}

TEST(GatedFc1, HasTheGateShareAboveTheUpShare) {
  ModelConfig model = LlamaModel();
  model.ffn_hidden_size = 8;
  model.add_bias_linear = true;
  for (const char* name :
       {"layers.1.mlp.fc1.weight", "layers.1.mlp.fc1.bias"}) {
    const auto rows = [&](int64_t rank) {
      return RowsOfPieces(
          model, Find(LocalParameters(model, {.tensor = 2}, rank, 0), name));
    };
    EXPECT_THAT(rows(0), ElementsAre("gate[0:4]", "up[0:4]"));
    EXPECT_THAT(rows(1), ElementsAre("gate[4:8]", "up[4:8]"));
  }
}

TEST(Vocabulary, IsStoredUnpaddedAndHeldPadded) {
  ModelConfig model = GptModel();
  model.vocab_size = 10;
  model.padded_vocab_size = 24;
  EXPECT_EQ(LogicalTensors(model)[0],
            (LogicalTensor{"embedding.word.weight", {10, 16}}));
  const auto word = [&model](int64_t rank) {
    return LocalParameters(model, {.tensor = 4}, rank, 0)[0];
  };
  for (int64_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(word(rank).shape, (ckpt::Shape{6, 16}));
  }
  EXPECT_THAT(RowsOfPieces(model, word(0)), ElementsAre("word[0:6]"));
  EXPECT_THAT(RowsOfPieces(model, word(1)), ElementsAre("word[6:10]"));
  // Ranks of nothing but padding.
  EXPECT_THAT(word(2).pieces, IsEmpty());
  EXPECT_THAT(word(3).pieces, IsEmpty());
}

TEST(RegistrationOrder, IsMegatronsOfAGpt2Stage) {
  const Layout layout = {.pipeline = 4};
  EXPECT_THAT(
      Names(LocalParameters(GptModel(), layout, 0, 0)),
      ElementsAre(
          "embedding.word.weight", "embedding.position.weight",
          "layers.0.attention.proj.weight", "layers.0.attention.proj.bias",
          "layers.0.attention_norm.weight", "layers.0.attention_norm.bias",
          "layers.0.attention.qkv.weight", "layers.0.attention.qkv.bias",
          "layers.0.mlp_norm.weight", "layers.0.mlp_norm.bias",
          "layers.0.mlp.fc1.weight", "layers.0.mlp.fc1.bias",
          "layers.0.mlp.fc2.weight", "layers.0.mlp.fc2.bias"));
  const std::vector<std::string> last =
      Names(LocalParameters(GptModel(), layout, 0, 3));
  EXPECT_EQ(last[0], "layers.3.attention.proj.weight");
  EXPECT_THAT(
      std::vector(last.end() - 3, last.end()),
      ElementsAre("final_norm.weight", "final_norm.bias", "output.weight"));
}

TEST(RegistrationOrder, IsMegatronsOfALlamaStage) {
  ModelConfig model = LlamaModel();
  model.num_layers = 1;
  EXPECT_THAT(
      Names(LocalParameters(model, {}, 0, 0)),
      ElementsAre("embedding.word.weight", "layers.0.attention.proj.weight",
                  "layers.0.attention_norm.weight",
                  "layers.0.attention.qkv.weight", "layers.0.mlp_norm.weight",
                  "layers.0.mlp.fc1.weight", "layers.0.mlp.fc2.weight",
                  "final_norm.weight", "output.weight"));
}

TEST(QkvBias, ComesWithEitherFlag) {
  ModelConfig model = LlamaModel();
  const auto has_bias = [&model] {
    const std::vector<std::string> names =
        Names(LocalParameters(model, {}, 0, 0));
    return std::find(names.begin(), names.end(),
                     "layers.0.attention.qkv.bias") != names.end();
  };
  EXPECT_FALSE(has_bias());
  model.add_qkv_bias = true;
  EXPECT_TRUE(has_bias());
  model.add_qkv_bias = false;
  model.add_bias_linear = true;
  EXPECT_TRUE(has_bias());
}

TEST(TiedEmbedding, HasACopyOnTheLastStageOnlyUnderPipelining) {
  const ModelConfig model = GptModel();
  for (const Parameter& p : LocalParameters(model, {}, 0, 0)) {
    EXPECT_FALSE(p.shared_embedding || p.is_copy) << p.name;
    EXPECT_NE(p.name, "output.weight");
  }
  const Layout layout = {.tensor = 2, .pipeline = 2};
  const Parameter original = LocalParameters(model, layout, 1, 0)[0];
  const Parameter copy = LocalParameters(model, layout, 1, 1).back();
  EXPECT_TRUE(original.shared_embedding && copy.shared_embedding);
  EXPECT_FALSE(original.is_copy);
  EXPECT_TRUE(copy.is_copy);
  EXPECT_EQ(copy.pieces, original.pieces);
  EXPECT_EQ(copy.shape, original.shape);
}

TEST(UntiedEmbedding, IsTwoTensors) {
  const ModelConfig model = LlamaModel();
  const Layout layout = {.pipeline = 2};
  const Parameter first = LocalParameters(model, layout, 0, 0)[0];
  const Parameter last = LocalParameters(model, layout, 0, 1).back();
  EXPECT_FALSE(first.shared_embedding || last.shared_embedding);
  EXPECT_FALSE(last.is_copy);
  EXPECT_NE(first.pieces[0].tensor, last.pieces[0].tensor);
}

TEST(LogicalTensors, HaveUniqueNamesAndTheCountOfGpt2Small) {
  ModelConfig model = GptModel();
  model.num_layers = 12;
  model.hidden_size = 768;
  model.ffn_hidden_size = 3072;
  model.num_attention_heads = model.num_query_groups = 12;
  model.kv_channels = 64;
  model.vocab_size = 50257;
  model.padded_vocab_size = 50304;
  model.max_position_embeddings = 1024;
  int64_t count = 0;
  std::vector<std::string> names;
  for (const LogicalTensor& tensor : LogicalTensors(model)) {
    count += ckpt::NumElements(tensor.shape);
    names.push_back(tensor.name);
  }
  EXPECT_EQ(count, 124'439'808);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(LogicalTensors, HaveTheCountOfLlama2) {
  ModelConfig model = LlamaModel();
  model.num_layers = 32;
  model.hidden_size = 4096;
  model.ffn_hidden_size = 11008;
  model.num_attention_heads = model.num_query_groups = 32;
  model.kv_channels = 128;
  model.vocab_size = model.padded_vocab_size = 32000;
  int64_t count = 0;
  for (const LogicalTensor& tensor : LogicalTensors(model)) {
    count += ckpt::NumElements(tensor.shape);
  }
  EXPECT_EQ(count, 6'738'415'616);
}

TEST(LocalParameters, HoldTheElementsOfTheFusedMatricesInPlace) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const ModelConfig model = RandomModel(random);
    const Layout layout = RandomLayout(model, random);
    for (int64_t rank = 0; rank < layout.tensor; ++rank) {
      for (int64_t stage = 0; stage < layout.pipeline; ++stage) {
        for (const Parameter& parameter :
             LocalParameters(model, layout, rank, stage)) {
          std::vector<Label> labels(parameter.num_elements());
          EXPECT_EQ(PlacePieces(model, parameter.pieces, labels), 0);
          EXPECT_EQ(labels,
                    LocalLabels(model, parameter.name, layout.tensor, rank))
              << parameter.name << " of rank " << rank << ", seed " << seed;
        }
      }
    }
  }
}

}  // namespace
}  // namespace shardshift::reshard
