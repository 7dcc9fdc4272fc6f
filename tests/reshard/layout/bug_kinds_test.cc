// Kinds of fault that bit users of other tools; the numbers are those of the
// collection of such faults that the project works from.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/layout/rank_state.h"
#include "reshard/layout/stages.h"
#include "reshard/layout/write_assignment.h"
#include "tests/reshard/oracle.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// "g4" for row 4 of a tensor called ...gate...: first letter of its last word
// but one, and the row; "-" for padding.
std::vector<std::string> RowLabels(const ModelConfig& model,
                                   const Parameter& parameter) {
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  std::vector<Label> labels(parameter.num_elements());
  PlacePieces(model, parameter.pieces, labels);
  const int64_t columns =
      parameter.shape.size() == 1 ? 1 : parameter.shape.back();
  std::vector<std::string> rows;
  for (size_t i = 0; i < labels.size(); i += columns) {
    if (labels[i].is_padding()) {
      rows.push_back("-");
      continue;
    }
    std::string name = tensors[labels[i].tensor].name;
    name = name.substr(0, name.rfind('.'));
    rows.push_back(absl::StrCat(name.substr(name.rfind('.') + 1, 1),
                                labels[i].index / columns));
  }
  return rows;
}

std::vector<std::string> RowsOf(const ModelConfig& model, const Layout& layout,
                                int64_t tensor_rank, const std::string& name) {
  for (const Parameter& p : LocalParameters(model, layout, tensor_rank, 0)) {
    if (p.name == name) return RowLabels(model, p);
  }
  ADD_FAILURE() << name;
  return {};
}

// Gated feed-forward blocks with biases: of a layer, or of each expert.
struct GatedModel {
  ModelConfig model;
  std::string fc1;  // the parameters' common name
};
std::vector<GatedModel> GatedModels() {
  ModelConfig dense = LlamaModel();
  dense.ffn_hidden_size = 4;
  dense.add_bias_linear = true;
  ModelConfig experts = dense;
  experts.num_experts = 2;
  experts.moe_ffn_hidden_size = 4;
  return {{dense, "layers.1.mlp.fc1."},
          {experts, "layers.1.mlp.experts.1.fc1."}};
}

TEST(BugKindsOfLayouts, B01AndB02GateAndUpAreCutApartBiasesToo) {
  for (const auto& gated : GatedModels()) {
    for (const char* kind : {"weight", "bias"}) {
      const auto rows = [&](int64_t ranks, int64_t rank) {
        return RowsOf(gated.model, {.tensor = ranks}, rank, gated.fc1 + kind);
      };
      EXPECT_THAT(rows(1, 0),
                  ElementsAre("g0", "g1", "g2", "g3", "u0", "u1", "u2", "u3"));
      EXPECT_THAT(rows(2, 0), ElementsAre("g0", "g1", "u0", "u1"));
      EXPECT_THAT(rows(2, 1), ElementsAre("g2", "g3", "u2", "u3"));
      EXPECT_THAT(rows(4, 3), ElementsAre("g3", "u3"));
    }
  }
}

TEST(BugKindsOfLayouts, B04AndB06GroupsAreCutByRowBiasesToo) {
  ModelConfig model = LlamaModel();
  model.num_query_groups = 4;
  model.kv_channels = 2;
  model.num_attention_heads = 8;
  model.add_qkv_bias = true;
  for (const char* kind : {"weight", "bias"}) {
    EXPECT_THAT(
        RowsOf(model, {.tensor = 2}, 1,
               absl::StrCat("layers.0.attention.qkv.", kind)),
        ElementsAre("q8", "q9", "q10", "q11", "k4", "k5", "v4", "v5", "q12",
                    "q13", "q14", "q15", "k6", "k7", "v6", "v7"));
  }
}

// Layers of each buffer of a rank, by the logical tensors it holds.
std::vector<std::set<std::string>> LayersHeld(const ModelConfig& model,
                                              const Layout& layout,
                                              int64_t rank) {
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  std::vector<std::set<std::string>> layers;
  const RankState state = MakeRankState(model, layout, rank);
  for (const LocalBuffer& buffer : state.buffers) {
    layers.emplace_back();
    for (const Piece& piece : buffer.pieces) {
      const std::string& name = tensors[piece.tensor].name;
      if (name.rfind("layers.", 0) == 0)
        layers.back().insert(name.substr(7, 1));
    }
  }
  return layers;
}

using Held = std::vector<std::set<std::string>>;

TEST(BugKindsOfLayouts, B12InterleavedChunksHoldTheLayersOfTheRule) {
  ModelConfig model = GptModel();
  model.num_layers = 8;
  const Layout layout = {.pipeline = 2, .virtual_stages = 2};
  EXPECT_EQ(LayersHeld(model, layout, 0), (Held{{"0", "1"}, {"4", "5"}}));
  EXPECT_EQ(LayersHeld(model, layout, 1), (Held{{"2", "3"}, {"6", "7"}}));
}

TEST(BugKindsOfLayouts, B15StagesHoldLayersByTheirGlobalNumber) {
  EXPECT_EQ(LayersHeld(GptModel(), {.pipeline = 2}, 1), (Held{{"2", "3"}}));
}

TEST(BugKindsOfLayouts, B16AStageMayHoldNothing) {
  const ModelConfig model = MixtureModel();
  const Layout layout = {.pipeline = 3,
                         .data = 2,
                         .distributed_optimizer = true,
                         .expert = 2,
                         .stage_layers = {2, 0, 2}};
  ASSERT_OK(Validate(model, layout));
  const auto items = AssignWriters(model, layout);
  for (const int64_t rank : {2, 3}) {
    const RankState state = MakeRankState(model, layout, rank);
    EXPECT_EQ(state.buffers.size(), 2);
    for (const LocalBuffer& buffer : state.buffers) {
      EXPECT_THAT(buffer.pieces, IsEmpty());
    }
    EXPECT_THAT(items[rank], IsEmpty());
  }
}

// TP2, DP2 and a third axis: whatever the group a tensor is replicated over,
// each of its elements has one writer.
TEST(BugKindsOfLayouts, B19EveryElementHasOneWriter) {
  const ModelConfig model = MixtureModel();
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  for (const bool distributed : {false, true}) {
    for (const int64_t expert_tensor : {1, 2}) {
      const Layout layout = {.tensor = 2,
                             .pipeline = 2,
                             .data = 2,
                             .distributed_optimizer = distributed,
                             .expert = 2,
                             .expert_tensor = expert_tensor};
      std::vector<std::vector<int64_t>> writers;
      writers.reserve(tensors.size());
      for (const LogicalTensor& tensor : tensors) {
        writers.emplace_back(3 * ckpt::NumElements(tensor.shape), 0);
      }
      for (const auto& list : AssignWriters(model, layout)) {
        for (const WriteItem& item : list) {
          const ckpt::Box whole = ckpt::WholeBox(tensors[item.tensor].shape);
          for (const int64_t at : ElementsOf(whole, item.box)) {
            ++writers[item.tensor][3 * at + item.role];
          }
        }
      }
      for (size_t i = 0; i < tensors.size(); ++i) {
        EXPECT_EQ(writers[i], std::vector<int64_t>(writers[i].size(), 1))
            << tensors[i].name;
      }
    }
  }
}

// Padding is a matter of memory: it changes no logical tensor, and no rank
// stores any of it, whether or not the output layer is the embedding.
TEST(BugKindsOfLayouts, B43AndB45PaddingOfTheVocabularyIsNeverStored) {
  for (const bool untied : {false, true}) {
    ModelConfig model = GptModel();
    model.untie_embeddings_and_output_weights = untied;
    model.vocab_size = 10;
    model.padded_vocab_size = 16;
    ModelConfig wider = model;
    wider.padded_vocab_size = 64;
    EXPECT_EQ(LogicalTensors(model), LogicalTensors(wider));
    const Layout layout = {.tensor = 4, .pipeline = 2};
    ASSERT_OK(Validate(model, layout));
    for (const ModelConfig& padded : {model, wider}) {
      std::vector<int64_t> rows(LogicalTensors(padded).size(), 0);
      for (const auto& list : AssignWriters(padded, layout)) {
        for (const WriteItem& item : list) {
          const ckpt::Box& box = item.box;
          rows[item.tensor] =
              std::max(rows[item.tensor], box.start[0] + box.extent[0]);
        }
      }
      EXPECT_EQ(rows[TensorNamed(padded, "embedding.word.weight")], 10);
      if (!untied) continue;
      EXPECT_EQ(rows[TensorNamed(padded, "output.weight")], 10);
    }
  }
}

// Rank and chunk of each buffer with a parameter of that name.
std::vector<std::pair<int64_t, int64_t>> HoldersOf(const ModelConfig& model,
                                                   const Layout& layout,
                                                   const std::string& name) {
  std::vector<std::pair<int64_t, int64_t>> holders;
  for (int64_t rank = 0; rank < layout.world_size(); ++rank) {
    const RankState state = MakeRankState(model, layout, rank);
    for (const LocalBuffer& buffer : state.buffers) {
      for (const Parameter& p : buffer.parameters) {
        if (p.name == name) holders.emplace_back(rank, buffer.chunk);
      }
    }
  }
  return holders;
}

TEST(BugKindsOfLayouts, B50AndB52ATiedMatrixIsOnTheFirstAndTheLastChunk) {
  ModelConfig model = GptModel();
  model.num_layers = 8;
  using Holders = std::vector<std::pair<int64_t, int64_t>>;
  const auto embedding = [&](const Layout& layout) {
    return HoldersOf(model, layout, "embedding.word.weight");
  };
  const auto output = [&](const Layout& layout) {
    return HoldersOf(model, layout, "output.weight");
  };
  EXPECT_THAT(output({}), IsEmpty());
  for (const int64_t stages : {2, 4}) {
    for (const int64_t chunks : {1, 2}) {
      const Layout layout = {.pipeline = stages, .virtual_stages = chunks};
      ASSERT_OK(Validate(model, layout));
      EXPECT_EQ(embedding(layout), (Holders{{0, 0}}));
      EXPECT_EQ(output(layout), (Holders{{stages - 1, chunks - 1}}));
    }
  }
  model.untie_embeddings_and_output_weights = true;
  EXPECT_EQ(output({}), (Holders{{0, 0}}));
}

// A flat buffer's length depends on DP, what is stored does not.
TEST(BugKindsOfLayouts, B23AnyDataParallelSizeCutsTheSameTensors) {
  const ModelConfig model = MixtureModel();
  const auto length = [&](int64_t data) {
    const Layout layout = {
        .data = data, .distributed_optimizer = true, .expert = 2};
    return MakeRankState(model, layout, 0).buffers[0].buffer.num_elements;
  };
  EXPECT_NE(length(2), length(6));
  for (const int64_t data : {2, 4, 6, 8}) {
    int64_t elements = 0;
    const Layout layout = {
        .data = data, .distributed_optimizer = true, .expert = 2};
    for (const auto& list : AssignWriters(model, layout)) {
      for (const WriteItem& item : list)
        elements += ckpt::NumElements(item.box);
    }
    int64_t expected = 0;
    for (const LogicalTensor& tensor : LogicalTensors(model)) {
      expected += 3 * ckpt::NumElements(tensor.shape);
    }
    EXPECT_EQ(elements, expected);
  }
}

// Rank by rank, the rows of a matrix of expert 1 that it owns the state of.
std::vector<std::string> RowsOfAnExpert(const Layout& layout) {
  ModelConfig model = MixtureModel();
  model.num_experts = 2;
  model.moe_ffn_hidden_size = 4;
  const int64_t tensor = TensorNamed(model, "layers.1.mlp.experts.1.up.weight");
  std::vector<std::string> owned;
  for (int64_t rank = 0; rank < layout.world_size(); ++rank) {
    owned.emplace_back();
    const RankState state = MakeRankState(model, layout, rank);
    for (const LocalBuffer& buffer : state.buffers) {
      for (const Piece& piece : buffer.pieces) {
        if (piece.tensor != tensor) continue;
        absl::StrAppend(&owned.back(), piece.box.start[0], "+",
                        piece.box.extent[0]);
      }
    }
  }
  return owned;
}

// Which ranks share an expert follows from the tensor, not from EP > 1: by the
// ranks of the rest its state would be cut where no rank has the other part.
TEST(BugKindsOfLayouts, B65ExpertsAreReplicatedOverTheirOwnRanks) {
  EXPECT_THAT(RowsOfAnExpert({.tensor = 2, .expert_tensor = 1}),
              ElementsAre("0+4", "0+4"));
  EXPECT_THAT(RowsOfAnExpert({.data = 2, .expert_tensor = 2}),
              ElementsAre("0+2", "2+2"));
  EXPECT_THAT(
      RowsOfAnExpert(
          {.data = 2, .distributed_optimizer = true, .expert_tensor = 2}),
      ElementsAre("0+2", "2+2"));
  EXPECT_THAT(RowsOfAnExpert({.tensor = 2}), ElementsAre("0+2", "2+2"));
}

}  // namespace
}  // namespace shardshift::reshard
