// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/flat_buffer.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "reshard/layout/model_map.h"
#include "reshard/layout/parameters.h"
#include "reshard/layout/stages.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {

void PrintTo(const Range& range, std::ostream* out) {
  *out << "[" << range.begin << "," << range.end << ")";
}

namespace {

using ::testing::ElementsAre;
using Bucket = FlatBuffer::Bucket;

// distributed-optimizer.md 1.5: emb, ln, qkv, proj, fln.
std::vector<FlatParameter> WorkedParameters(bool shared_embedding = false) {
  return {{500, shared_embedding}, {10}, {300}, {100}, {10}};
}

FlatBufferOptions Distributed(int64_t data_ranks) {
  return {.data_ranks = data_ranks, .distributed_optimizer = true};
}

TEST(FlatBufferWorkedExample, OfTwoRanksAndOneBucket) {
  const FlatBuffer buffer = MakeFlatBuffer(WorkedParameters(), Distributed(2));
  EXPECT_THAT(buffer.parameters,
              ElementsAre(Range{576, 1076}, Range{512, 522}, Range{192, 492},
                          Range{64, 164}, Range{0, 10}));
  EXPECT_THAT(buffer.buckets, ElementsAre(Bucket{{0, 1152}, 1076}));
  EXPECT_EQ(buffer.num_elements, 1152);
  EXPECT_THAT(buffer.OwnedRanges(0), ElementsAre(Range{0, 576}));
  EXPECT_THAT(buffer.OwnedRanges(1), ElementsAre(Range{576, 1152}));
}

TEST(FlatBufferWorkedExample, OfFourRanksAndTwoBuckets) {
  FlatBufferOptions options = Distributed(4);
  options.bucket_size = 400;
  const FlatBuffer buffer = MakeFlatBuffer(WorkedParameters(), options);
  EXPECT_THAT(buffer.parameters,
              ElementsAre(Range{576, 1076}, Range{512, 522}, Range{192, 492},
                          Range{64, 164}, Range{0, 10}));
  EXPECT_THAT(buffer.buckets,
              ElementsAre(Bucket{{0, 512}, 492}, Bucket{{512, 1152}, 564}));
  EXPECT_THAT(buffer.OwnedRanges(0),
              ElementsAre(Range{0, 128}, Range{512, 672}));
  EXPECT_THAT(buffer.OwnedRanges(1),
              ElementsAre(Range{128, 256}, Range{672, 832}));
  EXPECT_THAT(buffer.OwnedRanges(2),
              ElementsAre(Range{256, 384}, Range{832, 992}));
  EXPECT_THAT(buffer.OwnedRanges(3),
              ElementsAre(Range{384, 512}, Range{992, 1152}));
}

TEST(FlatBufferWorkedExample, OfASharedEmbedding) {
  const FlatBuffer buffer =
      MakeFlatBuffer(WorkedParameters(true), Distributed(2));
  EXPECT_EQ(buffer.parameters[0], (Range{640, 1140}));
  EXPECT_EQ(buffer.parameters[1], (Range{512, 522}));
  EXPECT_THAT(buffer.buckets,
              ElementsAre(Bucket{{0, 640}, 576}, Bucket{{640, 1152}, 500}));
}

TEST(FlatBufferWithoutDistributedOptimizer, HasNoPaddingAndOneOwnerOfAll) {
  const FlatBuffer buffer = MakeFlatBuffer(
      WorkedParameters(true), {.data_ranks = 4, .bucket_size = 400});
  EXPECT_THAT(buffer.parameters,
              ElementsAre(Range{420, 920}, Range{410, 420}, Range{110, 410},
                          Range{10, 110}, Range{0, 10}));
  EXPECT_THAT(buffer.buckets, ElementsAre(Bucket{{0, 920}, 920}));
  for (int64_t rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(buffer.OwnedRanges(rank), ElementsAre(Range{0, 920}));
  }
}

TEST(FlatBuffer, LeavesRanksWithNothingButPadding) {
  const FlatBuffer buffer =
      MakeFlatBuffer(std::vector<FlatParameter>{{5}}, Distributed(8));
  EXPECT_THAT(buffer.buckets, ElementsAre(Bucket{{0, 128}, 5}));
  EXPECT_THAT(buffer.OwnedRanges(7), ElementsAre(Range{112, 128}));
}

TEST(FlatBuffer, OfNothingIsEmpty) {
  for (const FlatBufferOptions& options :
       {FlatBufferOptions{}, Distributed(3)}) {
    const FlatBuffer buffer = MakeFlatBuffer({}, options);
    EXPECT_EQ(buffer.num_elements, 0);
    EXPECT_TRUE(buffer.buckets.empty());
    EXPECT_TRUE(buffer.OwnedRanges(0).empty());
  }
}

TEST(DefaultBucketSize, GrowsWithTheDataRanksAboveForty) {
  EXPECT_EQ(DefaultBucketSize(1), 40'000'000);
  EXPECT_EQ(DefaultBucketSize(40), 40'000'000);
  EXPECT_EQ(DefaultBucketSize(41), 41'000'000);
}

TEST(IntersectRanges, IsTheCommonPart) {
  EXPECT_EQ(Intersect({0, 5}, {3, 9}), (Range{3, 5}));
  EXPECT_TRUE(Intersect({0, 3}, {3, 9}).empty());
  EXPECT_TRUE(Intersect({0, 3}, {5, 9}).empty());
}

TEST(FlatBuffer, OwnedRangesTileItAndBucketsKeepTheirAlignment) {
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    std::vector<FlatParameter> parameters(Uniform(random, 1, 12));
    for (FlatParameter& p : parameters) {
      p.num_elements = Uniform(random, 1, 900);
      p.shared_embedding = Uniform(random, 0, 5) == 0;
    }
    FlatBufferOptions options = Distributed(Uniform(random, 1, 9));
    if (round % 2 == 0) options.bucket_size = Uniform(random, 1, 1500);
    const FlatBuffer buffer = MakeFlatBuffer(parameters, options);
    std::vector<int64_t> owners(buffer.num_elements, 0);
    for (int64_t rank = 0; rank < options.data_ranks; ++rank) {
      for (const Range& range : buffer.OwnedRanges(rank)) {
        for (int64_t i = range.begin; i < range.end; ++i) ++owners.at(i);
      }
    }
    EXPECT_EQ(owners, std::vector<int64_t>(buffer.num_elements, 1));
    const int64_t multiple =
        std::max<int64_t>(1, std::lcm(options.data_ranks, int64_t{128}));
    for (const Bucket& bucket : buffer.buckets) {
      EXPECT_EQ(bucket.range.begin % 128, 0);
      EXPECT_EQ(bucket.range.end % multiple, 0);
    }
    int64_t end = 0;
    for (size_t i = parameters.size(); i-- > 0;) {
      EXPECT_EQ(buffer.parameters[i].begin % 64, 0);
      EXPECT_GE(buffer.parameters[i].begin, end);
      EXPECT_EQ(buffer.parameters[i].size(), parameters[i].num_elements);
      end = buffer.parameters[i].end;
    }
  }
}

// Buffers that Megatron-LM itself laid out.
class MegatronBuffers : public ::testing::Test {
 protected:
  MegatronBuffers() {
    std::ifstream(SHARDSHIFT_GOLDEN_DIR "/megatron_buffers.json") >> entries_;
  }
  nlohmann::json entries_;
};

Layout LayoutOf(const nlohmann::json& entry) {
  return {
      .tensor = entry["tensor"],
      .pipeline = entry["pipeline"],
      .data = entry["data"],
      .distributed_optimizer = entry["distributed_optimizer"],
      .expert = entry.value("expert", 1),
      .layers_per_virtual_stage = entry.value("layers_per_virtual_stage", 0)};
}

BufferPlace PlaceOf(const nlohmann::json& entry) {
  return {.experts = entry.value("experts", false),
          .stage = entry["stage"],
          .chunk = entry.value("chunk", 0),
          .tensor = entry["rank"],
          .expert = entry.value("experts", false)
                        ? entry.value("expert_rank", 0)
                        : 0};
}

ModelConfig ModelOf(const nlohmann::json& entry) {
  ModelConfig model = entry["llama"] ? LlamaModel() : GptModel();
  model.hidden_size = 32;
  model.ffn_hidden_size = 64;
  model.kv_channels = 8;
  model.vocab_size = 259;
  model.padded_vocab_size = entry["tensor"] == 1 ? 264 : 272;
  model.max_position_embeddings = 32;
  if (entry.contains("expert")) {
    model.num_experts = 4;
    model.moe_ffn_hidden_size = 48;
  }
  return model;
}

TEST_F(MegatronBuffers, AreMadeTheSame) {
  ASSERT_EQ(entries_.size(), 19);
  for (const nlohmann::json& entry : entries_) {
    SCOPED_TRACE(entry["run"]);
    const Layout layout = LayoutOf(entry);
    std::vector<FlatParameter> parameters;
    std::vector<Range> placed;
    for (const nlohmann::json& parameter : entry["parameters"]) {
      placed.push_back({parameter[1], parameter[2]});
      const std::string name = parameter[0];
      const bool tied = layout.pipeline > 1 && !entry["llama"] &&
                        (absl::StrContains(name, "word_embeddings") ||
                         absl::StrContains(name, "output_layer"));
      parameters.push_back({placed.back().size(), tied});
    }
    std::vector<Bucket> buckets;
    for (const nlohmann::json& bucket : entry["buckets"]) {
      buckets.push_back({{bucket[0], bucket[1]}, bucket[2]});
    }
    FlatBufferOptions options = {
        .data_ranks =
            ModelMap(ModelOf(entry), layout).RanksOf(PlaceOf(entry)).count,
        .distributed_optimizer = layout.distributed_optimizer};
    if (!entry["bucket_size"].is_null()) {
      options.bucket_size = entry["bucket_size"].get<int64_t>();
    }
    const FlatBuffer buffer = MakeFlatBuffer(parameters, options);
    EXPECT_EQ(buffer.parameters, placed);
    EXPECT_EQ(buffer.buckets, buckets);
  }
}

// Adds `begin` to the number after `prefix` in a name that has one.
void CountFrom(int64_t begin, const std::string& prefix, std::string& name) {
  size_t at = name.find(prefix);
  if (at == std::string::npos) return;
  at += prefix.size();
  const size_t digits = name.find('.', at) - at;
  const int64_t number = std::stoll(name.substr(at, digits));
  name.replace(at, digits, std::to_string(begin + number));
}

// The name of a parameter of ours. Megatron counts layers from the first of
// its chunk, and experts from the first of its rank.
std::string NameFromMegatron(std::string name, int64_t first_layer,
                             int64_t first_expert) {
  const std::vector<std::pair<std::string, std::string>> words = {
      {"embedding.word_embeddings", "embedding.word"},
      {"embedding.position_embeddings", "embedding.position"},
      {"decoder.final_layernorm", "final_norm"},
      {"output_layer", "output"},
      {"decoder.layers.", "layers."},
      {"input_layernorm", "attention_norm"},
      {"pre_mlp_layernorm", "mlp_norm"},
      {"self_attention.", "attention."},
      {"local_experts.", ""},
      {".linear_", "."}};
  for (const auto& [theirs, ours] : words) {
    const size_t at = name.find(theirs);
    if (at != std::string::npos) name.replace(at, theirs.size(), ours);
  }
  CountFrom(first_layer, "layers.", name);
  CountFrom(first_expert, "experts.", name);
  return name;
}

TEST_F(MegatronBuffers, HoldTheParametersOfThePlaceWithTheirLocalSizes) {
  using Parameters = std::vector<std::pair<std::string, int64_t>>;
  for (const nlohmann::json& entry : entries_) {
    SCOPED_TRACE(entry["run"]);
    const ModelConfig model = ModelOf(entry);
    const Layout layout = LayoutOf(entry);
    const BufferPlace place = PlaceOf(entry);
    const int64_t chunk = place.chunk * layout.pipeline + place.stage;
    const int64_t first_layer = LayersOfChunks(model, layout)[chunk].begin;
    const int64_t first_expert =
        place.expert * model.num_experts / layout.expert;
    Parameters theirs;
    for (const nlohmann::json& parameter : entry["parameters"]) {
      theirs.emplace_back(
          NameFromMegatron(parameter[0], first_layer, first_expert),
          parameter[2].get<int64_t>() - parameter[1].get<int64_t>());
    }
    Parameters ours;
    for (const Parameter& parameter :
         ModelMap(model, layout).MakeBuffer(place).parameters) {
      ours.emplace_back(parameter.name, parameter.num_elements());
    }
    // These runs have the norms apart from the matrices after them, hence
    // another order; experts have none.
    if (!place.experts) {
      std::sort(ours.begin(), ours.end());
      std::sort(theirs.begin(), theirs.end());
    }
    EXPECT_EQ(ours, theirs);
  }
}

}  // namespace
}  // namespace shardshift::reshard
