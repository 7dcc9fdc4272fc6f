// What a rank holds and what a layer communicates, against formulas written by
// hand from the shapes.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
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

// The kinds of collectives of `comm` since ResetStats, all others being 0.
void ExpectOnly(const Communicator& comm, CommKind kind,
                const CommStats::Count& expected) {
  for (int i = 0; i < kNumCommKinds; ++i) {
    const auto each = static_cast<CommKind>(i);
    EXPECT_EQ(comm.stats().of(each).calls, each == kind ? expected.calls : 0)
        << CommKindName(each);
    EXPECT_EQ(comm.stats().of(each).bytes, each == kind ? expected.bytes : 0)
        << CommKindName(each);
  }
}

std::vector<Communicator*> GroupsOf(Mesh& mesh) {
  std::vector<Communicator*> groups = {&mesh.world(), &mesh.pipeline(),
                                       &mesh.data(), &mesh.tensor()};
  if (mesh.query_group() != nullptr) groups.push_back(mesh.query_group());
  return groups;
}

void ExpectLayerTraffic(Mesh& mesh, const CommStats::Count& all_reduces,
                        CommKind group_kind, int64_t group_bytes) {
  ExpectOnly(mesh.world(), CommKind::kBarrier, {});
  ExpectOnly(mesh.pipeline(), CommKind::kBarrier, {});
  ExpectOnly(mesh.data(), CommKind::kBarrier, {});
  ExpectOnly(mesh.tensor(), CommKind::kTreeAllReduce, all_reduces);
  if (mesh.query_group() != nullptr) {
    ExpectOnly(*mesh.query_group(), group_kind, {1, group_bytes});
  }
  for (Communicator* group : GroupsOf(mesh)) group->ResetStats();
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

  const CommStats::Count two_all_reduces = {2, 2 * rows * hidden * 4};
  const int64_t qkv_bytes =
      rows * config.model.qkv_width() / mesh.layout().tensor * 4;
  Buffer x(rows * hidden);
  std::fill_n(x.data(), x.size(), 0.5F);
  Buffer y;
  TransformerLayer::Cache cache;
  SS_RETURN_IF_ERROR(layer.Forward(std::move(x), rows, y, cache));
  ExpectLayerTraffic(mesh, two_all_reduces, CommKind::kAllGather, qkv_bytes);

  const MicroBatch batch{.num_samples = kSamples};
  SS_RETURN_IF_ERROR(layer.Backward(cache, batch, y));
  // A rank contributes the gradients of its heads at the places of the whole
  // group, once for each node of the tree over heads: here one.
  const int64_t image_bytes = mesh.query_group() == nullptr
                                  ? 0
                                  : mesh.query_group()->size() * qkv_bytes;
  ExpectLayerTraffic(mesh, two_all_reduces, CommKind::kTreeReduceScatter,
                     image_bytes);
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
  EXPECT_OK(
      OnEveryRank(config, {.tensor = 4}, [&](Mesh& mesh, RankModel& model) {
        EXPECT_EQ(mesh.query_group()->size(), 2);
        return CheckLayerTraffic(config, mesh, model);
      }));
}

}  // namespace
}  // namespace shardshift::trainer
