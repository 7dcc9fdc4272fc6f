// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/rank_state.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/reshard/oracle.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

// Of a rank with a plain layout.
LocalBuffer OnlyBuffer(const ModelConfig& model, const Layout& layout,
                       int64_t rank) {
  RankState state = MakeRankState(model, layout, rank);
  EXPECT_EQ(state.buffers.size(), 1);
  return state.buffers.front();
}

// The flat buffer of a rank as labels.
std::vector<Label> BufferLabels(const ModelConfig& model, const Layout& layout,
                                int64_t rank, const LocalBuffer& state) {
  const int64_t tensor_rank = CoordinatesOf(layout, rank).tensor;
  std::vector<Label> labels(state.buffer.num_elements);
  for (size_t i = 0; i < state.parameters.size(); ++i) {
    int64_t at = state.buffer.parameters[i].begin;
    for (const Label& label : LocalLabels(model, state.parameters[i].name,
                                          layout.tensor, tensor_rank)) {
      labels.at(at++) = label;
    }
    EXPECT_EQ(at, state.buffer.parameters[i].end);
  }
  return labels;
}

TEST(RankState, PiecesAreTheOwnedPartOfTheBufferInOrder) {
  for (uint32_t seed = 100; seed < 140; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const ModelConfig model = RandomModel(random);
    const Layout layout = RandomLayout(model, random);
    for (int64_t rank = 0; rank < layout.world_size(); ++rank) {
      const LocalBuffer state = OnlyBuffer(model, layout, rank);
      const std::vector<Label> labels =
          BufferLabels(model, layout, rank, state);
      std::vector<Label> owned(labels.size());
      for (const Range& range : state.owned) {
        for (int64_t i = range.begin; i < range.end; ++i) {
          owned.at(i) = labels.at(i);
        }
      }
      std::vector<Label> pieces(labels.size());
      EXPECT_EQ(PlacePieces(model, state.pieces, pieces), 0);
      EXPECT_EQ(pieces, owned) << "rank " << rank;
      for (size_t i = 1; i < state.pieces.size(); ++i) {
        EXPECT_LT(state.pieces[i - 1].offset, state.pieces[i].offset);
      }
    }
  }
}

// How many ranks own the optimizer state of each element of a tensor.
int64_t ExpectedOwners(const ModelConfig& model, const Layout& layout,
                       const std::string& name) {
  int64_t owners = layout.distributed_optimizer ? 1 : layout.data;
  if (IsReplicated(name)) owners *= layout.tensor;
  const bool copied = name == "embedding.word.weight" && layout.pipeline > 1 &&
                      !model.untie_embeddings_and_output_weights;
  return copied ? 2 * owners : owners;
}

TEST(RankState, EveryElementHasTheOwnersThatTheLayoutImplies) {
  for (uint32_t seed = 200; seed < 240; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const ModelConfig model = RandomModel(random);
    const Layout layout = RandomLayout(model, random);
    const std::vector<LogicalTensor> tensors = LogicalTensors(model);
    std::vector<std::vector<int64_t>> owners;
    owners.reserve(tensors.size());
    for (const LogicalTensor& tensor : tensors) {
      owners.emplace_back(ckpt::NumElements(tensor.shape), 0);
    }
    for (int64_t rank = 0; rank < layout.world_size(); ++rank) {
      const LocalBuffer state = OnlyBuffer(model, layout, rank);
      for (const Piece& piece : state.pieces) {
        const ckpt::Box whole = ckpt::WholeBox(tensors[piece.tensor].shape);
        for (const int64_t element : ElementsOf(whole, piece.box)) {
          ++owners[piece.tensor].at(element);
        }
      }
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      const int64_t expected = ExpectedOwners(model, layout, tensors[i].name);
      EXPECT_EQ(owners[i], std::vector(owners[i].size(), expected))
          << tensors[i].name << ", " << ToString(layout);
    }
  }
}

TEST(RankState, OfPaddingOnlyOwnsNothing) {
  ModelConfig model = LlamaModel();
  model.num_layers = 1;
  // The first stage has 5 rows of 128 and a layer; far more ranks than rows.
  model.hidden_size = model.ffn_hidden_size = 2;
  model.num_attention_heads = model.num_query_groups = 1;
  model.kv_channels = 2;
  model.vocab_size = 5;
  model.padded_vocab_size = 128;
  const Layout layout = {.data = 128, .distributed_optimizer = true};
  int64_t owning = 0;
  for (int64_t rank = 0; rank < 128; ++rank) {
    if (!OnlyBuffer(model, layout, rank).pieces.empty()) ++owning;
  }
  EXPECT_GT(owning, 0);
  EXPECT_LT(owning, 128);
}

TEST(RankState, CutsTheBufferIntoBucketsOnTheFirstStageOnly) {
  ModelConfig model = LlamaModel();
  model.hidden_size = 2048;
  model.ffn_hidden_size = 8192;  // 50 million elements a layer
  const Layout layout = {
      .pipeline = 2, .data = 2, .distributed_optimizer = true};
  const auto buckets = [&](int64_t stage) {
    return OnlyBuffer(model, layout,
                      RankOf(layout, RankCoordinates{.pipeline = stage}))
        .buffer.buckets;
  };
  const std::vector<FlatBuffer::Bucket> first = buckets(0);
  EXPECT_EQ(first.size(), 3);
  for (size_t i = 0; i + 1 < first.size(); ++i) {
    EXPECT_GE(first[i].unpadded, DefaultBucketSize(2));
  }
  EXPECT_EQ(buckets(1).size(), 1);
}

TEST(RankState, CopiesOfATiedEmbeddingLineUpTheirShards) {
  for (const int64_t data : {1, 2, 3, 4}) {
    const ModelConfig model = GptModel();
    const Layout layout = {.tensor = 2,
                           .pipeline = 4,
                           .data = data,
                           .distributed_optimizer = true};
    const auto word_boxes = [&](int64_t stage, int64_t data_rank) {
      std::vector<ckpt::Box> boxes;
      const int64_t rank = RankOf(
          layout,
          RankCoordinates{.tensor = 1, .pipeline = stage, .data = data_rank});
      const LocalBuffer state = OnlyBuffer(model, layout, rank);
      for (const Piece& piece : state.pieces) {
        if (piece.tensor == 0) boxes.push_back(piece.box);
      }
      return boxes;
    };
    for (int64_t data_rank = 0; data_rank < data; ++data_rank) {
      EXPECT_EQ(word_boxes(0, data_rank), word_boxes(3, data_rank));
    }
    EXPECT_FALSE(word_boxes(0, 0).empty());
    EXPECT_TRUE(word_boxes(1, 0).empty());
  }
}

}  // namespace
}  // namespace shardshift::reshard
