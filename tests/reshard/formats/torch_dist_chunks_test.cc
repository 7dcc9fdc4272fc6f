// The chunks of all ranks make up the tensors that a reader takes apart.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/torch_dist_chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/core/box.h"
#include "reshard/formats/source_tensors.h"
#include "reshard/formats/torch_dist_tensors.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/model_map.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::ElementsAre;

// What an element of a stored tensor is: a logical tensor, and an index there.
using Element = std::pair<int64_t, int64_t>;
constexpr Element kPadding = {-1, -1};
constexpr Element kNothing = {-2, -2};

struct Image {
  ckpt::Shape shape;
  std::vector<Element> elements;
};

// Puts a piece into the image of `box` of the tensor, dense from `offset` on.
void Put(const Piece& piece, const LogicalTensor& tensor,
         const std::vector<int64_t>& places, int64_t offset, Image& image) {
  const auto indices = ElementsOf(ckpt::WholeBox(tensor.shape), piece.box);
  for (size_t i = 0; i < indices.size(); ++i) {
    image.elements[places[offset + i]] = {piece.tensor, indices[i]};
  }
}

class Chunked {
 public:
  Chunked(const ModelConfig& model, const Layout& layout)
      : model_(model), layout_(layout), tensors_(LogicalTensors(model)) {}

  std::map<std::string, Image> Images() {
    const ModelMap map(model_, layout_);
    for (const BufferPlace& place : map.Places()) {
      for (const Parameter& parameter : map.MakeBuffer(place).parameters) {
        const bool is_replica =
            parameter.split == Split::kReplicated && place.tensor > 0;
        if (!parameter.is_copy && !is_replica) Add(parameter, place);
      }
    }
    return std::move(images_);
  }

 private:
  void Add(const Parameter& parameter, const BufferPlace& place) {
    const TensorShare share = {
        place.experts ? layout_.expert_tensor_size() : layout_.tensor,
        place.tensor};
    const StackedKey key =
        TorchDistKey(TakeApart(parameter.name), model_, LayerStyle());
    Image& image = images_[key.key];
    ckpt::Shape shape = key.stack;
    for (const int64_t extent : WholeShape(parameter, share)) {
      shape.push_back(extent);
    }
    if (image.elements.empty()) {
      image.shape = shape;
      image.elements.assign(ckpt::NumElements(shape), kNothing);
    }
    EXPECT_EQ(image.shape, shape) << key.key;
    for (const ParameterChunk& chunk : ChunksOf(parameter, share)) {
      AddChunk(parameter, key, chunk, image);
    }
  }

  void AddChunk(const Parameter& parameter, const StackedKey& key,
                const ParameterChunk& chunk, Image& image) {
    ckpt::Box box = {key.at, ckpt::Shape(key.at.size(), 1)};
    box.start.insert(box.start.end(), chunk.box.start.begin(),
                     chunk.box.start.end());
    box.extent.insert(box.extent.end(), chunk.box.extent.begin(),
                      chunk.box.extent.end());
    const auto places = ElementsOf(ckpt::WholeBox(image.shape), box);
    for (const int64_t place : places) {
      EXPECT_EQ(image.elements[place], kNothing) << key.key;
      image.elements[place] = kPadding;
    }
    for (size_t i = 0; i < chunk.num_pieces; ++i) {
      const Piece& piece = parameter.pieces[chunk.first_piece + i];
      Put(piece, tensors_[piece.tensor], places, piece.offset - chunk.offset,
          image);
    }
  }

  const ModelConfig model_;
  const Layout layout_;
  const std::vector<LogicalTensor> tensors_;
  std::map<std::string, Image> images_;
};

// What the reader makes of tensors under these keys.
std::map<std::string, Image> AsRead(
    const ModelConfig& model, const std::map<std::string, Image>& written) {
  SourceTensors source;
  for (const auto& [key, image] : written) {
    source.tensors.emplace_back().key = key;
  }
  const auto stored = TorchDistTensors(model, IndexByKey(source));
  EXPECT_OK(stored);
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  std::map<std::string, Image> images;
  for (const StoredTensor& tensor : stored->tensors) {
    Image& image = images[tensor.name];
    image.shape = tensor.shape;
    image.elements.assign(ckpt::NumElements(tensor.shape), kPadding);
    const ckpt::Box whole = ckpt::WholeBox(tensor.shape);
    const auto places = ElementsOf(whole, whole);
    for (const Piece& piece : tensor.pieces) {
      Put(piece, tensors[piece.tensor], places, piece.offset, image);
    }
  }
  return images;
}

TEST(TorchDistChunks, OfAllRanksAreTheTensorsThatAreRead) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    ModelConfig model =
        round % 2 == 0 ? RandomModel(random) : RandomMixture(random);
    model.dense_layers.clear();  // Megatron's arguments cannot say these
    const Layout layout = RandomWideLayout(model, random);
    const auto written = Chunked(model, layout).Images();
    const auto read = AsRead(model, written);
    ASSERT_EQ(written.size(), read.size());
    for (const auto& [key, image] : read) {
      ASSERT_EQ(written.at(key).shape, image.shape) << key;
      ASSERT_EQ(written.at(key).elements, image.elements)
          << key << ToString(layout);
    }
  }
}

// checkpoint-formats.md 3.3 has this one worked out.
TEST(TorchDistChunks, GateAndUpAreTwoChunks) {
  ModelConfig model = LlamaModel();
  model.ffn_hidden_size = 8;
  const ModelMap map(model, {.tensor = 2});
  const LocalBuffer buffer = map.MakeBuffer({.tensor = 1});
  for (const Parameter& parameter : buffer.parameters) {
    if (parameter.name != "layers.0.mlp.fc1.weight") continue;
    const auto chunks = ChunksOf(parameter, {2, 1});
    ASSERT_EQ(chunks.size(), 2U);
    EXPECT_EQ(ckpt::ToString(chunks[0].box), "[4:8,0:16]");
    EXPECT_EQ(ckpt::ToString(chunks[1].box), "[12:16,0:16]");
    EXPECT_EQ(chunks[1].offset, 4 * 16);
    EXPECT_EQ(WholeShape(parameter, {2, 1}), ckpt::Shape({16, 16}));
    return;
  }
  FAIL() << "no such parameter";
}

TEST(TorchDistChunks, KeysAreMegatronsOwn) {
  const ModelConfig dense = LlamaModel();
  const ModelConfig mixture = MixtureModel();
  const LayerStyle fused;
  const LayerStyle local = {.fuses_norms = false, .groups_experts = false};
  const auto key = [](const char* name, const ModelConfig& model,
                      const LayerStyle& style) {
    return TorchDistKey(TakeApart(name), model, style).key;
  };
  for (const LayerStyle& style : {fused, local}) {
    EXPECT_EQ(key("layers.2.mlp_norm.weight", dense, style),
              "decoder.layers.mlp.linear_fc1.layer_norm_weight");
    EXPECT_EQ(key("layers.2.attention_norm.weight", mixture, style),
              "decoder.layers.self_attention.linear_qkv.layer_norm_weight");
    EXPECT_EQ(key("final_norm.weight", dense, style),
              "decoder.final_layernorm.weight");
    EXPECT_EQ(TorchDistKey(TakeApart("layers.3.mlp.experts.2.fc2.weight"),
                           mixture, style),
              (StackedKey{"decoder.layers.mlp.experts.experts.linear_fc2."
                          "weight",
                          {4, 4},
                          {3, 2}}));
  }
  EXPECT_EQ(key("layers.2.mlp_norm.weight", mixture, fused),
            "decoder.layers.pre_mlp_layernorm.weight");
  EXPECT_EQ(key("layers.2.mlp_norm.weight", mixture, local),
            "decoder.layers.mlp.linear_fc1.layer_norm_weight");
}

std::vector<std::string> ObjectsOfLayer(const ModelConfig& model,
                                        const LayerStyle& style) {
  std::vector<std::string> keys;
  for (const StackedKey& key : ExtraStates(model, style)) {
    if (key.at.empty() || key.at[0] == 1) keys.push_back(ObjectKey(key));
  }
  return keys;
}

// As the files have them that megatron-core 0.16.1 wrote.
TEST(TorchDistChunks, ObjectsAreThoseOfTheModules) {
  const LayerStyle local = {.fuses_norms = false, .groups_experts = false};
  const ModelConfig dense = LlamaModel();
  const std::string layers = "decoder.layers.";
  EXPECT_THAT(
      ObjectsOfLayer(dense, local),
      ElementsAre(layers + "self_attention.linear_qkv._extra_state/shard_1_4",
                  layers + "self_attention.linear_proj._extra_state/shard_1_4",
                  layers + "mlp.linear_fc1._extra_state/shard_1_4",
                  layers + "mlp.linear_fc2._extra_state/shard_1_4"));
  ModelConfig mixture = MixtureModel();
  mixture.num_experts = 1;
  mixture.moe_shared_expert_intermediate_size = 0;
  const std::string experts = layers + "mlp.experts.experts.linear_";
  EXPECT_THAT(
      ObjectsOfLayer(mixture, local),
      ElementsAre(layers + "self_attention.linear_qkv._extra_state/shard_1_4",
                  layers + "self_attention.linear_proj._extra_state/shard_1_4",
                  experts + "fc1._extra_state/shard_1.0_4.1",
                  experts + "fc2._extra_state/shard_1.0_4.1"));
}

TEST(TorchDistChunks, ObjectsOfTransformerEngine) {
  const auto keys = ObjectsOfLayer(MixtureModel(), LayerStyle());
  const std::string layers = "decoder.layers.";
  for (const char* module :
       {"self_attention.core_attention", "self_attention.q_layernorm",
        "self_attention.k_layernorm", "pre_mlp_layernorm",
        "mlp.shared_experts.linear_fc1", "mlp.shared_experts.linear_fc2"}) {
    EXPECT_THAT(
        keys, ::testing::Contains(layers + module + "._extra_state/shard_1_4"));
  }
  EXPECT_THAT(keys, ::testing::Contains(
                        "decoder.final_layernorm._extra_state/shard_0_1"));
}

}  // namespace
}  // namespace shardshift::reshard
