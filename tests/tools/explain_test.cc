// What `reshard explain` says of a rank, against labels made row by row.
// SPDX-License-Identifier: Apache-2.0
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/reshard/oracle.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"
#include "tools/explain_rank.h"
#include "tools/explain_ranks.h"

namespace shardshift {
namespace {

using nlohmann::json;
using reshard::Label;
using reshard::Layout;
using reshard::ModelConfig;
using reshard::Piece;
using ::testing::HasSubstr;

struct Case {
  explicit Case(uint32_t seed) : random(seed) {
    model = reshard::RandomMixture(random);
    layout = reshard::RandomWideLayout(model, random);
  }
  std::mt19937 random;
  ModelConfig model;
  Layout layout;
};

std::vector<Piece> PiecesOf(const ModelConfig& model, const json& boxes) {
  std::vector<Piece> pieces;
  for (const json& box : boxes) {
    ckpt::Box at;
    for (const int64_t start : box["start"]) at.start.push_back(start);
    for (const int64_t extent : box["extent"]) at.extent.push_back(extent);
    pieces.push_back({reshard::TensorNamed(model, box["tensor"]), at,
                      box["offset"].get<int64_t>()});
  }
  return pieces;
}

// A flat buffer as told, and how often each of its elements was told of.
struct Told {
  std::vector<Label> labels;
  std::vector<int> times;
};

Told ReadBuffer(const ModelConfig& model, const json& buffer) {
  Told told;
  told.labels.resize(buffer["elements"].get<size_t>());
  told.times.resize(told.labels.size());
  for (const json& parameter : buffer["parameters"]) {
    const std::vector<Piece> pieces = PiecesOf(model, parameter["boxes"]);
    reshard::PlacePieces(model, pieces, told.labels);
    for (const Piece& piece : pieces) {
      for (int64_t i = 0; i < ckpt::NumElements(piece.box); ++i) {
        ++told.times.at(piece.offset + i);
      }
    }
  }
  for (const json& range : buffer["padding"]) {
    for (int64_t i = range[0]; i < range[1]; ++i) ++told.times.at(i);
  }
  return told;
}

// The same buffer by names and places of parameters alone.
std::vector<Label> ExpectedLabels(const Case& c, const json& buffer,
                                  int64_t rank) {
  const int64_t ranks =
      buffer["experts"] ? c.layout.expert_tensor_size() : c.layout.tensor;
  std::vector<Label> labels(buffer["elements"].get<size_t>());
  for (const json& parameter : buffer["parameters"]) {
    int64_t at = parameter["range"][0];
    for (const Label& label : reshard::LocalLabels(c.model, parameter["name"],
                                                   ranks, rank % ranks)) {
      labels.at(at++) = label;
    }
    EXPECT_EQ(at, parameter["range"][1].get<int64_t>());
  }
  return labels;
}

void CheckBuffer(const Case& c, const json& buffer, int64_t rank) {
  const Told told = ReadBuffer(c.model, buffer);
  EXPECT_EQ(told.times, std::vector<int>(told.times.size(), 1));
  const std::vector<Label> expected = ExpectedLabels(c, buffer, rank);
  EXPECT_EQ(told.labels, expected);
  std::vector<Label> owned(expected.size());
  for (const json& range : buffer["owned"]) {
    for (int64_t i = range[0]; i < range[1]; ++i) {
      owned.at(i) = expected.at(i);
    }
  }
  std::vector<Label> told_owned(expected.size());
  EXPECT_EQ(reshard::PlacePieces(
                c.model, PiecesOf(c.model, buffer["owned_boxes"]), told_owned),
            0);
  EXPECT_EQ(told_owned, owned);
}

// Layers by the names of parameters.
std::set<int64_t> LayersIn(const json& buffers, int64_t num_layers) {
  std::set<int64_t> layers;
  for (const json& buffer : buffers) {
    for (const json& parameter : buffer["parameters"]) {
      for (int64_t i = 0; i < num_layers; ++i) {
        if (absl::StartsWith(parameter["name"].get<std::string>(),
                             absl::StrCat("layers.", i, "."))) {
          layers.insert(i);
        }
      }
    }
  }
  return layers;
}

TEST(ExplainRank, TellsOfEveryElementOfARankOnce) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const Case c(seed);
    SCOPED_TRACE(absl::StrCat(seed, ": ", ToString(c.layout)));
    for (int64_t rank = 0; rank < c.layout.world_size(); ++rank) {
      SCOPED_TRACE(rank);
      const json told = RankJson(ReportOf(c.model, c.layout, rank));
      std::set<int64_t> layers;
      for (const json& buffer : told["buffers"]) {
        CheckBuffer(c, buffer, rank);
        for (int64_t i = buffer["layers"][0]; i < buffer["layers"][1]; ++i) {
          layers.insert(i);
        }
      }
      EXPECT_EQ(layers, LayersIn(told["buffers"], c.model.num_layers));
    }
  }
}

TEST(ExplainRanks, AgreesWithWhatEachRankSays) {
  for (uint32_t seed = 100; seed < 160; ++seed) {
    const Case c(seed);
    SCOPED_TRACE(absl::StrCat(seed, ": ", ToString(c.layout)));
    const json ranks = RanksJson(c.model, c.layout);
    ASSERT_EQ(ranks["ranks"].size(), c.layout.world_size());
    for (int64_t rank = 0; rank < c.layout.world_size(); ++rank) {
      SCOPED_TRACE(rank);
      const json one = RankJson(ReportOf(c.model, c.layout, rank));
      const json& of_all = ranks["ranks"][rank];
      EXPECT_EQ(of_all["rank"], rank);
      EXPECT_EQ(of_all["coordinates"], one["coordinates"]);
      EXPECT_EQ(of_all["bytes"], one["bytes"]);
      int64_t elements = 0;
      int64_t owned = 0;
      json layers = json::array();
      for (const json& buffer : one["buffers"]) {
        elements += buffer["elements"].get<int64_t>();
        for (const json& range : buffer["owned"]) {
          owned += range[1].get<int64_t>() - range[0].get<int64_t>();
        }
        if (!buffer["experts"]) layers.push_back(buffer["layers"]);
      }
      EXPECT_EQ(of_all["layers"], layers);
      EXPECT_EQ(of_all["bytes"]["parameters"], 4 * elements);
      EXPECT_EQ(of_all["bytes"]["gradients"], 4 * elements);
      EXPECT_EQ(of_all["bytes"]["optimizer_state"], 12 * owned);
    }
  }
}

TEST(ExplainRank, CountsCoordinatesInMegatronsOrder) {
  const Layout layout = {
      .tensor = 2, .pipeline = 2, .data = 4, .expert = 4, .expert_tensor = 1};
  const json told = RankJson(ReportOf(reshard::MixtureModel(), layout, 8 + 5));
  EXPECT_EQ(told["coordinates"], json({{"tensor", 1},
                                       {"data", 2},
                                       {"pipeline", 1},
                                       {"expert", 1},
                                       {"expert_tensor", 0},
                                       {"expert_data", 1}}));
  // Models without experts have no such axes.
  EXPECT_EQ(RankJson(ReportOf(reshard::GptModel(), {}, 0))["coordinates"],
            json({{"tensor", 0}, {"data", 0}, {"pipeline", 0}}));
}

// 251 tokens on two ranks of 128 rows of 16: the second has 5 rows of padding.
TEST(ExplainRank, PrintsATableWithPaddingAndShards) {
  const Layout layout = {
      .tensor = 2, .pipeline = 2, .data = 2, .distributed_optimizer = true};
  const std::string text = RankText(ReportOf(reshard::GptModel(), layout, 5));
  EXPECT_THAT(text, HasSubstr("rank 5 of 8, TP2 PP2 DP2"));
  EXPECT_THAT(text, HasSubstr("tensor 1 of 2, pipeline 1 of 2, data 0 of 2\n"));
  EXPECT_THAT(text, HasSubstr("model chunk 0 (layers 2-3)"));
  EXPECT_THAT(
      text,
      HasSubstr("output.weight                   [128,16]     vocabulary, copy "
                "of the embedding  [0:1968]     "
                "embedding.word.weight[128:251,0:16]\n"));
  EXPECT_THAT(text, HasSubstr("[1968:2048]  padding\n"));
  EXPECT_THAT(text, HasSubstr("owns the optimizer state of [0:1024], "));
  EXPECT_THAT(text, HasSubstr("one of 2 shards:\n"));
  EXPECT_THAT(text,
              HasSubstr("[0:1024]     embedding.word.weight[128:192,0:16]\n"));
}

TEST(ExplainRank, SaysThatItOwnsAllWithoutTheDistributedOptimizer) {
  const std::string text =
      RankText(ReportOf(reshard::LlamaModel(), {.data = 2}, 1));
  EXPECT_THAT(text, HasSubstr("owns the optimizer state of all of it\n"));
}

}  // namespace
}  // namespace shardshift
