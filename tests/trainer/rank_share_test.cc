// What a rank holds and what a layer communicates, against formulas written by
// hand from the shapes.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <mutex>
#include <numeric>
#include <vector>

#include "ckpt/core/status_macros.h"
#include "reshard/layout/stages.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/tiny_model.h"
#include "trainer/layers/transformer_layer.h"

namespace shardshift::trainer {
namespace {

using reshard::Layout;
using reshard::ModelConfig;

// Elements of parameters that tensor parallelism splits, and of those that
// each of its ranks holds whole.
struct Elements {
  int64_t split = 0;
  int64_t shared = 0;
};

bool IsGpt(const ModelConfig& model) { return !model.swiglu; }

// Of one layer of the tiny models: qkv, proj, fc1 and fc2; the biases of qkv
// and fc1 are split, all others and the norms are not.
Elements LayerElements(const ModelConfig& model) {
  const int64_t h = model.hidden_size;
  const int64_t f = model.ffn_hidden_size;
  const int64_t qkv = (model.num_attention_heads + 2 * model.num_query_groups) *
                      model.kv_channels;
  if (IsGpt(model)) {
    return {.split = qkv * h + h * h + 2 * h * f + qkv + f, .shared = 6 * h};
  }
  return {.split = qkv * h + h * h + 3 * h * f, .shared = 2 * h};
}

// Of a stage. The embedding is padded; where stages hold two copies of a tied
// one, both count here.
Elements StageElements(const ModelConfig& model, const Layout& layout,
                       int64_t stage) {
  const int64_t h = model.hidden_size;
  int64_t layers = 0;
  for (const reshard::LayerRange& chunk :
       reshard::LayersOfChunksOn(model, layout, stage)) {
    layers += chunk.end - chunk.begin;
  }
  const int64_t vocabulary = model.padded_vocab_size * h;
  const Elements layer = LayerElements(model);
  Elements sum = {layers * layer.split, layers * layer.shared};
  if (stage == 0) {
    sum.split += vocabulary;
    if (IsGpt(model)) sum.shared += model.max_position_embeddings * h;
  }
  if (stage == layout.pipeline - 1) {
    sum.shared += IsGpt(model) ? 2 * h : h;
    if (!IsGpt(model) || layout.pipeline > 1) sum.split += vocabulary;
  }
  return sum;
}

int64_t HeldElements(const RankModel& model, const Parameters& parameters) {
  int64_t held = 0;
  for (const reshard::Parameter& parameter : parameters.state().parameters) {
    held += parameter.num_elements();
  }
  EXPECT_GE(model.parameter_bytes(), 4 * held);
  return held;
}

class RankShareTest : public ::testing::TestWithParam<Layout> {};

TEST_P(RankShareTest, HoldsOneTensorRanksShareOfItsStage) {
  const Layout& layout = GetParam();
  for (const RunConfig& config : {TinyGpt(), TinyLlama()}) {
    EXPECT_OK(OnEveryRank(config, layout, [&](Mesh& mesh, RankModel& model) {
      const Elements stage =
          StageElements(config.model, layout, mesh.at().pipeline);
      EXPECT_EQ(stage.split % layout.tensor, 0);
      EXPECT_EQ(HeldElements(model, model.parameters()),
                stage.split / layout.tensor + stage.shared);
      return absl::OkStatus();
    }));
  }
}

TEST_P(RankShareTest, HoldsOneDataRanksShareOfTheOptimizerState) {
  const Layout& layout = GetParam();
  const RunConfig config = TinyGpt();
  EXPECT_OK(OnEveryRank(
      config, layout, [&](Mesh& mesh, RankModel& model) -> absl::Status {
        const Elements stage =
            StageElements(config.model, layout, mesh.at().pipeline);
        const int64_t held = stage.split / layout.tensor + stage.shared;
        EXPECT_EQ(model.optimizer_bytes(),
                  2 * 4 * model.optimizer().shard_size());
        if (!layout.distributed_optimizer) {
          EXPECT_EQ(model.optimizer().shard_size(), held);
          EXPECT_EQ(model.parameter_bytes(), 4 * held);
          return absl::OkStatus();
        }
        // Parameters begin at multiples of 64 elements, buckets end at
        // multiples of DP and of 128; each chunk has a bucket, a tied embedding
        // its own.
        const Parameters& parameters = model.parameters();
        const auto count =
            static_cast<int64_t>(parameters.state().parameters.size());
        const int64_t buckets =
            1 + std::ssize(reshard::LayersOfChunksOn(config.model, layout,
                                                     mesh.at().pipeline));
        const int64_t most_padding =
            63 * count + buckets * (std::lcm(layout.data, int64_t{128}) - 1);
        const int64_t buffer = model.optimizer().shard_size() * layout.data;
        EXPECT_EQ(4 * buffer, model.parameter_bytes());
        EXPECT_GE(buffer, held);
        EXPECT_LE(buffer, held + most_padding);
        return absl::OkStatus();
      }));
}

// Every logical element of a stage has exactly one owner among its
// data-parallel ranks, or as many as there are without the distributed
// optimizer.
TEST_P(RankShareTest, OwnsEachElementOnce) {
  const Layout& layout = GetParam();
  const RunConfig config = TinyLlama();
  EXPECT_OK(OnEveryRank(
      config, layout, [&](Mesh& mesh, RankModel& model) -> absl::Status {
        const Parameters::State& state = model.parameters().state();
        std::array<int64_t, 2> counts = {0, 0};  // owned, held
        for (const reshard::Piece& piece : state.pieces) {
          counts[0] += ckpt::NumElements(piece.box);
        }
        for (const reshard::Parameter& parameter : state.parameters) {
          for (const reshard::Piece& piece : parameter.pieces) {
            counts[1] += ckpt::NumElements(piece.box);
          }
        }
        const int64_t held = counts[1];
        SS_RETURN_IF_ERROR(mesh.data().AllReduceSum(counts));
        EXPECT_EQ(counts[0],
                  layout.distributed_optimizer ? held : held * layout.data);
        return absl::OkStatus();
      }));
}

INSTANTIATE_TEST_SUITE_P(Layouts, RankShareTest,
                         ::testing::ValuesIn(TinyLayouts()),
                         [](const auto& test) { return NameOf(test.param); });

using Traffic = std::map<CommKind, CommStats::Count>;

// What `comm` did since ResetStats is `expected` and nothing else.
void ExpectTraffic(const Communicator& comm, const Traffic& expected) {
  for (int i = 0; i < kNumCommKinds; ++i) {
    const auto kind = static_cast<CommKind>(i);
    const auto it = expected.find(kind);
    const CommStats::Count count =
        it == expected.end() ? CommStats::Count{} : it->second;
    EXPECT_EQ(comm.stats().of(kind).calls, count.calls) << CommKindName(kind);
    EXPECT_EQ(comm.stats().of(kind).bytes, count.bytes) << CommKindName(kind);
  }
}

std::vector<Communicator*> GroupsOf(Mesh& mesh) {
  std::vector<Communicator*> groups = {&mesh.world(), &mesh.pipeline(),
                                       &mesh.data(), &mesh.tensor()};
  if (mesh.query_group() != nullptr) groups.push_back(mesh.query_group());
  return groups;
}

void ExpectLayerTraffic(Mesh& mesh, const Traffic& tensor,
                        const Traffic& query_group) {
  ExpectTraffic(mesh.world(), {});
  ExpectTraffic(mesh.pipeline(), {});
  ExpectTraffic(mesh.data(), {});
  ExpectTraffic(mesh.tensor(), tensor);
  if (mesh.query_group() != nullptr) {
    ExpectTraffic(*mesh.query_group(), query_group);
  }
  for (Communicator* group : GroupsOf(mesh)) group->ResetStats();
}

// Of `gathers` and `sums` of R rows, by the bytes that one rank puts in.
Traffic TensorTraffic(int64_t gathers, int64_t sums, int64_t row_bytes,
                      const SequenceShards& shards, int64_t ranks) {
  const CommStats::Count summed = {sums, sums * row_bytes};
  if (!shards.is_cut()) return {{CommKind::kTreeAllReduce, summed}};
  return {{CommKind::kAllGather, {gathers, gathers * row_bytes / ranks}},
          {CommKind::kTreeReduceScatter, summed}};
}

// One layer forward and backward on `mesh`, and what it sent.
absl::Status CheckLayerTraffic(const RunConfig& config, Mesh& mesh,
                               RankModel& model) {
  constexpr int64_t kSamples = 2;
  const int64_t rows = kSamples * config.seq_length;
  const int64_t hidden = config.model.hidden_size;
  const RopeTable rope = MakeRopeTable(config.model, config.seq_length);
  TransformerLayer layer(model.context(), 0, rope);
  for (Communicator* group : GroupsOf(mesh)) group->ResetStats();

  const SequenceShards& shards = model.context().shards;
  const auto tensor_traffic = [&](int64_t gathers) {
    return TensorTraffic(gathers, /*sums=*/2, rows * hidden * 4, shards,
                         mesh.layout().tensor);
  };
  const int64_t qkv_bytes =
      rows * config.model.qkv_width() / mesh.layout().tensor * 4;
  Buffer x(shards.rows(rows) * hidden);
  std::fill_n(x.data(), x.size(), 0.5F);
  Buffer y;
  TransformerLayer::Cache cache;
  const MicroBatch batch{.num_samples = kSamples};
  SS_RETURN_IF_ERROR(layer.Forward(std::move(x), batch, y, cache));
  ExpectLayerTraffic(mesh, tensor_traffic(/*gathers=*/2),
                     {{CommKind::kAllGather, {1, qkv_bytes}}});

  SS_RETURN_IF_ERROR(layer.Backward(cache, batch, y));
  // A rank contributes the gradients of its heads at the places of the whole
  // group, once for each node of the tree over heads: here one.
  const int64_t image_bytes = mesh.query_group() == nullptr
                                  ? 0
                                  : mesh.query_group()->size() * qkv_bytes;
  // The gradients of both outputs, and once more the inputs, are gathered.
  ExpectLayerTraffic(mesh, tensor_traffic(/*gathers=*/4),
                     {{CommKind::kTreeReduceScatter, {1, image_bytes}}});
  return absl::OkStatus();
}

TEST(LayerTraffic, IsTwoAllReducesEachWay) {
  for (const RunConfig& config : {TinyGpt(), TinyLlama()}) {
    for (const int64_t tensor : {1, 2}) {
      EXPECT_OK(OnEveryRank(config, {.tensor = tensor},
                            [&](Mesh& mesh, RankModel& model) {
                              EXPECT_EQ(mesh.query_group(), nullptr);
                              return CheckLayerTraffic(config, mesh, model);
                            }));
    }
  }
}

TEST(LayerTraffic, GathersQkvWhereRanksShareQueryGroups) {
  const RunConfig config = TinyLlama();
  for (const bool sequence_parallel : {false, true}) {
    EXPECT_OK(OnEveryRank(config, {.tensor = 4},
                          [&](Mesh& mesh, RankModel& model) {
                            EXPECT_EQ(mesh.query_group()->size(), 2);
                            return CheckLayerTraffic(config, mesh, model);
                          },
                          {.sequence_parallel = sequence_parallel}));
  }
}

// The same bytes as an all-reduce has, halved: each rank keeps its rows only.
TEST(LayerTraffic, WithSequenceParallelIsGathersAndReduceScatters) {
  for (const RunConfig& config : {TinyGpt(), TinyLlama()}) {
    EXPECT_OK(OnEveryRank(config, {.tensor = 2},
                          [&](Mesh& mesh, RankModel& model) {
                            EXPECT_TRUE(model.context().shards.is_cut());
                            return CheckLayerTraffic(config, mesh, model);
                          },
                          {.sequence_parallel = true}));
  }
}

TEST(LayerTraffic, OfOneTensorRankKnowsNoSequenceParallel) {
  const RunConfig config = TinyGpt();
  EXPECT_OK(OnEveryRank(config, {},
                        [&](Mesh& mesh, RankModel& model) {
                          EXPECT_FALSE(model.context().shards.is_cut());
                          return CheckLayerTraffic(config, mesh, model);
                        },
                        {.sequence_parallel = true}));
}

// A whole iteration on one stage: what is beyond the layers is the embedding
// (one sum, one gather of its gradient), the output layer (a gather each way,
// one sum, the two reductions of the loss), and one all-reduce of all vectors
// that ranks share.
TEST(StepTraffic, SumsReplicatedGradientsInOneAllReduce) {
  const RunConfig config = TinyGpt();
  const int64_t tensor = 2;
  EXPECT_OK(OnEveryRank(
      config, {.tensor = tensor},
      [&](Mesh& mesh, RankModel& model) -> absl::Status {
        mesh.tensor().ResetStats();
        const Batch batch = MockBatch(config, 0);
        SS_RETURN_IF_ERROR(model.Step(batch, /*lr=*/0, /*step=*/1).status());
        const ModelConfig& shape = config.model;
        const int64_t h = shape.hidden_size;
        const int64_t row_bytes = config.seq_length * h * 4;
        const int64_t gathers = 6 * shape.num_layers + 3;
        const int64_t sums = 4 * shape.num_layers + 2;
        const int64_t samples = config.global_batch_size;
        const int64_t vectors = StageElements(shape, mesh.layout(), 0).shared -
                                shape.max_position_embeddings * h;
        const int64_t groups = config.numerics.data_granularity;
        Traffic expected =
            TensorTraffic(samples * gathers, samples * sums, row_bytes,
                          model.context().shards, tensor);
        expected[CommKind::kTreeReduceScatter].bytes =
            samples * sums * row_bytes;
        expected[CommKind::kAllGather].bytes =
            samples * gathers * row_bytes / tensor;
        expected[CommKind::kAllReduceMax] = {samples,
                                             samples * config.seq_length * 4};
        expected[CommKind::kTreeAllReduce] = {
            samples + 1,
            samples * 2 * config.seq_length * 4 + groups * vectors * 4};
        ExpectTraffic(mesh.tensor(), expected);
        return absl::OkStatus();
      },
      {.sequence_parallel = true}));
}

}  // namespace
}  // namespace shardshift::trainer
