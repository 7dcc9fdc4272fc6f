// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/model_map.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "reshard/layout/write_assignment.h"
#include "tests/reshard/oracle.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

std::vector<std::string> Names(const LocalBuffer& buffer) {
  std::vector<std::string> names;
  for (const Parameter& p : buffer.parameters) names.push_back(p.name);
  return names;
}

// A random model and layout, and its text for messages.
struct Case {
  explicit Case(uint32_t seed) : random(seed) {
    model = RandomMixture(random);
    layout = RandomWideLayout(model, random);
    tensors = LogicalTensors(model);
  }
  std::mt19937 random;
  ModelConfig model;
  Layout layout;
  std::vector<LogicalTensor> tensors;
};

bool IsExpert(const std::string& name) {
  return absl::StrContains(name, ".experts.");
}

TEST(ModelMap, PutsEveryElementOfARanksParametersInItsPlace) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const Case c(seed);
    SCOPED_TRACE(absl::StrCat(seed, ": ", ToString(c.layout)));
    const ModelMap map(c.model, c.layout);
    for (int64_t rank = 0; rank < c.layout.world_size(); ++rank) {
      for (const LocalBuffer& buffer : map.StateOf(rank).buffers) {
        const int64_t ranks =
            buffer.experts ? c.layout.expert_tensor_size() : c.layout.tensor;
        for (const Parameter& parameter : buffer.parameters) {
          std::vector<Label> labels(parameter.num_elements());
          EXPECT_EQ(PlacePieces(c.model, parameter.pieces, labels), 0);
          // The fastest axis, whatever the kind.
          EXPECT_EQ(labels,
                    LocalLabels(c.model, parameter.name, ranks, rank % ranks))
              << parameter.name << " of rank " << rank;
        }
      }
    }
  }
}

// Layers by chunk, counted out one by one.
std::vector<std::set<int64_t>> LayersByChunk(const Case& c) {
  std::vector<std::set<int64_t>> layers;
  for (const LayerRange& range : LayersOfChunks(c.model, c.layout)) {
    layers.emplace_back();
    for (int64_t i = range.begin; i < range.end; ++i) layers.back().insert(i);
  }
  return layers;
}

// Names of parameters that a buffer may have of one layer.
bool BelongsTo(const std::string& name, int64_t layer, int64_t first_expert,
               int64_t experts) {
  if (!absl::StartsWith(name, absl::StrCat("layers.", layer, "."))) {
    return false;
  }
  if (!IsExpert(name)) return true;
  for (int64_t e = first_expert; e < first_expert + experts; ++e) {
    if (absl::StrContains(name, absl::StrCat(".experts.", e, "."))) return true;
  }
  return false;
}

TEST(ModelMap, GivesARankTheLayersOfItsChunksAndItsExperts) {
  for (uint32_t seed = 100; seed < 160; ++seed) {
    const Case c(seed);
    SCOPED_TRACE(absl::StrCat(seed, ": ", ToString(c.layout)));
    const auto chunks = LayersByChunk(c);
    const int64_t experts = c.model.num_experts / c.layout.expert;
    for (int64_t rank = 0; rank < c.layout.world_size(); ++rank) {
      const int64_t stage = rank / (c.layout.tensor * c.layout.data);
      const int64_t etp = c.layout.expert_tensor_size();
      const int64_t first = rank / etp % c.layout.expert * experts;
      for (const LocalBuffer& buffer :
           ModelMap(c.model, c.layout).StateOf(rank).buffers) {
        const auto& layers = chunks[buffer.chunk * c.layout.pipeline + stage];
        for (const std::string& name : Names(buffer)) {
          if (!absl::StartsWith(name, "layers.")) continue;
          EXPECT_TRUE(std::any_of(layers.begin(), layers.end(),
                                  [&](int64_t layer) {
                                    return BelongsTo(name, layer, first,
                                                     experts);
                                  }))
              << name << " on rank " << rank;
          EXPECT_EQ(IsExpert(name) && c.layout.separates_experts(),
                    buffer.experts);
        }
      }
    }
  }
}

// How many ranks own the optimizer state of each element of a tensor.
int64_t ExpectedOwners(const ModelConfig& model, const Layout& layout,
                       const std::string& name) {
  const bool expert = IsExpert(name);
  int64_t owners = expert ? layout.expert_data_size() : layout.data;
  if (layout.distributed_optimizer) owners = 1;
  if (IsReplicated(name)) {
    owners *= expert ? layout.expert_tensor_size() : layout.tensor;
  }
  const bool copied = name == "embedding.word.weight" && layout.pipeline > 1 &&
                      !model.untie_embeddings_and_output_weights;
  return copied ? 2 * owners : owners;
}

TEST(ModelMap, EveryElementHasTheOwnersThatTheLayoutImplies) {
  for (uint32_t seed = 200; seed < 260; ++seed) {
    const Case c(seed);
    SCOPED_TRACE(absl::StrCat(seed, ": ", ToString(c.layout)));
    std::vector<std::vector<int64_t>> owners;
    for (const LogicalTensor& tensor : c.tensors) {
      owners.emplace_back(ckpt::NumElements(tensor.shape), 0);
    }
    for (int64_t rank = 0; rank < c.layout.world_size(); ++rank) {
      const RankState state = MakeRankState(c.model, c.layout, rank);
      for (const LocalBuffer& buffer : state.buffers) {
        for (const Piece& piece : buffer.pieces) {
          const ckpt::Box whole = ckpt::WholeBox(c.tensors[piece.tensor].shape);
          for (const int64_t element : ElementsOf(whole, piece.box)) {
            ++owners[piece.tensor].at(element);
          }
        }
      }
    }
    for (size_t i = 0; i < c.tensors.size(); ++i) {
      const int64_t expected =
          ExpectedOwners(c.model, c.layout, c.tensors[i].name);
      EXPECT_EQ(owners[i], std::vector(owners[i].size(), expected))
          << c.tensors[i].name;
    }
  }
}

// The labels of a whole flat buffer, laid out by the names and placements of
// its parameters alone.
std::vector<Label> BufferLabels(const Case& c, const LocalBuffer& buffer,
                                int64_t rank) {
  const int64_t ranks =
      buffer.experts ? c.layout.expert_tensor_size() : c.layout.tensor;
  std::vector<Label> labels(buffer.buffer.num_elements);
  for (size_t i = 0; i < buffer.parameters.size(); ++i) {
    int64_t at = buffer.buffer.parameters[i].begin;
    for (const Label& label :
         LocalLabels(c.model, buffer.parameters[i].name, ranks, rank % ranks)) {
      labels.at(at++) = label;
    }
  }
  return labels;
}

TEST(ModelMap, PiecesAreTheOwnedPartOfEachBufferInOrder) {
  for (uint32_t seed = 300; seed < 340; ++seed) {
    const Case c(seed);
    SCOPED_TRACE(absl::StrCat(seed, ": ", ToString(c.layout)));
    for (int64_t rank = 0; rank < c.layout.world_size(); ++rank) {
      const RankState state = MakeRankState(c.model, c.layout, rank);
      for (const LocalBuffer& buffer : state.buffers) {
        const std::vector<Label> labels = BufferLabels(c, buffer, rank);
        std::vector<Label> owned(labels.size());
        for (const Range& range : buffer.owned) {
          std::copy(labels.begin() + range.begin, labels.begin() + range.end,
                    owned.begin() + range.begin);
        }
        std::vector<Label> pieces(labels.size());
        EXPECT_EQ(PlacePieces(c.model, buffer.pieces, pieces), 0);
        EXPECT_EQ(pieces, owned) << "rank " << rank;
        EXPECT_TRUE(std::is_sorted(buffer.pieces.begin(), buffer.pieces.end(),
                                   [](const Piece& a, const Piece& b) {
                                     return a.offset < b.offset;
                                   }));
      }
    }
  }
}

// The rule of write_assignment.h over a list of everything, the slow way.
std::vector<std::vector<WriteItem>> AssignSlowly(const Case& c) {
  std::map<std::pair<int64_t, ckpt::Box>, std::vector<int64_t>> holders;
  for (int64_t rank = 0; rank < c.layout.world_size(); ++rank) {
    for (const LocalBuffer& b :
         MakeRankState(c.model, c.layout, rank).buffers) {
      for (const Piece& p : b.pieces)
        holders[{p.tensor, p.box}].push_back(rank);
    }
  }
  std::vector<std::vector<WriteItem>> items(c.layout.world_size());
  std::vector<int64_t> load(c.layout.world_size(), 0);
  const auto give = [&](const WriteItem& item, const std::vector<int64_t>& to) {
    const int64_t writer = *std::min_element(
        to.begin(), to.end(),
        [&load](int64_t a, int64_t b) { return load[a] < load[b]; });
    load[writer] += ckpt::NumElements(item.box);
    items[writer].push_back(item);
  };
  std::map<std::tuple<int64_t, std::string, int64_t, ckpt::Box>, WriteItem>
      replicated;
  for (const auto& [key, ranks] : holders) {
    for (int64_t role = 0; role < 3; ++role) {
      const WriteItem item = {key.first, role, key.second};
      if (ranks.size() == 1) {
        give(item, ranks);
      } else {
        replicated[{-ckpt::NumElements(item.box), c.tensors[item.tensor].name,
                    role, item.box}] = item;
      }
    }
  }
  for (const auto& [key, item] : replicated) {
    give(item, holders[{item.tensor, item.box}]);
  }
  for (std::vector<WriteItem>& list : items) {
    std::sort(list.begin(), list.end(),
              [](const WriteItem& a, const WriteItem& b) {
                return std::tie(a.tensor, a.role, a.box) <
                       std::tie(b.tensor, b.role, b.box);
              });
  }
  return items;
}

TEST(ModelMap, LetsTheWritersBeThoseOfTheSlowRule) {
  for (uint32_t seed = 400; seed < 460; ++seed) {
    const Case c(seed);
    EXPECT_EQ(AssignWriters(c.model, c.layout), AssignSlowly(c))
        << seed << ": " << ToString(c.layout);
  }
}

TEST(RegistrationOrder, IsMegatronsOfAMixture) {
  ModelConfig model = MixtureModel();
  model.num_layers = 1;
  const Layout layout = {.data = 2, .expert = 2};
  const RankState state = MakeRankState(model, layout, 1);
  ASSERT_EQ(state.buffers.size(), 2);
  const std::string mlp = "layers.0.mlp.";
  EXPECT_THAT(
      Names(state.buffers[0]),
      ElementsAre(
          "embedding.word.weight", "layers.0.attention.proj.weight",
          "layers.0.attention_norm.weight", "layers.0.attention.qkv.weight",
          "layers.0.attention.q_norm.weight",
          "layers.0.attention.k_norm.weight", "layers.0.mlp_norm.weight",
          mlp + "router.weight", mlp + "shared_experts.output_gate.weight",
          mlp + "shared_experts.fc1.weight", mlp + "shared_experts.fc2.weight",
          "final_norm.weight", "output.weight"));
  EXPECT_THAT(
      Names(state.buffers[1]),
      ElementsAre(mlp + "experts.2.fc1.weight", mlp + "experts.2.fc2.weight",
                  mlp + "experts.3.fc1.weight", mlp + "experts.3.fc2.weight"));
}

// A router's bias comes with those of the linears (megatron-core 0.16.1).
TEST(RegistrationOrder, HasTheBiasesOfAMixtureAfterTheirMatrices) {
  ModelConfig model = MixtureModel();
  model.num_layers = 1;
  model.moe_shared_expert_intermediate_size = 0;
  model.moe_shared_expert_gate = false;
  model.add_bias_linear = true;
  const Layout layout = {.tensor = 2, .data = 2, .expert = 2};
  ASSERT_OK(Validate(model, layout));
  const RankState state = MakeRankState(model, layout, 2);
  const std::string mlp = "layers.0.mlp.";
  const std::vector<std::string> dense = Names(state.buffers[0]);
  const auto router =
      std::find(dense.begin(), dense.end(), mlp + "router.weight");
  ASSERT_NE(router, dense.end());
  EXPECT_EQ(router[1], mlp + "router.bias");
  EXPECT_THAT(
      Names(state.buffers[1]),
      ElementsAre(mlp + "experts.2.fc1.weight", mlp + "experts.2.fc1.bias",
                  mlp + "experts.2.fc2.weight", mlp + "experts.2.fc2.bias",
                  mlp + "experts.3.fc1.weight", mlp + "experts.3.fc1.bias",
                  mlp + "experts.3.fc2.weight", mlp + "experts.3.fc2.bias"));
}

TEST(RegistrationOrder, HasExpertsAmongTheRestWithoutExpertParallelism) {
  ModelConfig model = MixtureModel();
  model.num_layers = 1;
  const RankState state = MakeRankState(model, {.tensor = 2, .data = 2}, 1);
  ASSERT_EQ(state.buffers.size(), 1);
  const std::vector<std::string> names = Names(state.buffers[0]);
  EXPECT_EQ(std::count_if(names.begin(), names.end(), IsExpert), 8);
}

TEST(ModelMap, NumbersBuffersByChunkDenseOnesFirst) {
  const Layout layout = {
      .pipeline = 2, .data = 2, .expert = 2, .virtual_stages = 2};
  std::vector<std::pair<bool, int64_t>> order;
  for (const LocalBuffer& b :
       ModelMap(MixtureModel(), layout).StateOf(3).buffers) {
    order.emplace_back(b.experts, b.chunk);
  }
  using Order = std::vector<std::pair<bool, int64_t>>;
  EXPECT_EQ(order, (Order{{false, 0}, {false, 1}, {true, 0}, {true, 1}}));
}

// Every element under every role, once: what the owners of an element hold of
// it are equal boxes.
TEST(AssignWriters, B19GivesEveryElementOneWriterOnAnyLayout) {
  for (uint32_t seed = 500; seed < 540; ++seed) {
    const Case c(seed);
    SCOPED_TRACE(absl::StrCat(seed, ": ", ToString(c.layout)));
    std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> writers;
    for (const auto& list : AssignWriters(c.model, c.layout)) {
      for (const WriteItem& item : list) {
        const ckpt::Box whole = ckpt::WholeBox(c.tensors[item.tensor].shape);
        std::vector<int64_t>& of = writers[{item.tensor, item.role}];
        of.resize(ckpt::NumElements(whole), 0);
        for (const int64_t element : ElementsOf(whole, item.box)) {
          ++of[element];
        }
      }
    }
    EXPECT_EQ(writers.size(), 3 * c.tensors.size());
    for (const auto& [key, of] : writers) {
      EXPECT_EQ(of, std::vector<int64_t>(of.size(), 1))
          << c.tensors[key.first].name << " role " << key.second;
    }
  }
}

// A trillion parameters on 8,192 ranks.
TEST(AssignWriters, CoversATrillionParametersOnThousandsOfRanks) {
  ModelConfig model = MixtureModel();
  model.num_layers = 96;
  model.hidden_size = 8192;
  model.num_attention_heads = 64;
  model.num_query_groups = 8;
  model.kv_channels = 128;
  model.vocab_size = model.padded_vocab_size = 128'000;
  model.num_experts = 128;
  model.moe_ffn_hidden_size = 3328;
  model.moe_shared_expert_intermediate_size = 3328;
  const Layout layout = {.tensor = 8,
                         .pipeline = 16,
                         .data = 64,
                         .distributed_optimizer = true,
                         .expert = 64,
                         .expert_tensor = 1};
  ASSERT_OK(Validate(model, layout));
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  std::vector<int64_t> written(tensors.size(), 0);
  const auto items = AssignWriters(model, layout);
  EXPECT_EQ(items.size(), 8192);
  for (const std::vector<WriteItem>& list : items) {
    for (const WriteItem& item : list) {
      written[item.tensor] += ckpt::NumElements(item.box);
    }
  }
  int64_t sum = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t elements = ckpt::NumElements(tensors[i].shape);
    EXPECT_EQ(written[i], 3 * elements) << tensors[i].name;
    sum += elements;
  }
  EXPECT_GT(sum, int64_t{1'000'000'000'000});
}

}  // namespace
}  // namespace shardshift::reshard
