// Ranks' parameters within stored tensors, against plain loops.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/local_image.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "reshard/layout/model_map.h"
#include "reshard/layout/tensor_schema.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kTensorRanks = 2;

// A stored tensor in chunks of one file, whose elements are their own row-major
// index: the file has values[offset_bytes / 4].
struct Stored {
  SourceTensor tensor;
  std::vector<int64_t> values;
};

Stored StoreIn(const ckpt::Shape& shape, std::mt19937& random) {
  Stored stored;
  stored.tensor.key = "stored";
  stored.tensor.shape = shape;
  for (const ckpt::Box& box :
       ckpt::RandomPartition(ckpt::WholeBox(shape), 5, random)) {
    stored.tensor.chunks.push_back({box, 0, std::ssize(stored.values) * 4, 0});
    for (int64_t i = 0; i < ckpt::NumElements(box); ++i) {
      stored.values.push_back(ckpt::RowMajorIndex(shape, box, i));
    }
  }
  return stored;
}

// The values of a tensor of one dim, whose chunks must ascend and leave no gap.
std::vector<int64_t> ValuesOf(const SourceTensor& flat,
                              const std::vector<int64_t>& file) {
  std::vector<int64_t> values;
  for (const SourceChunk& chunk : flat.chunks) {
    EXPECT_EQ(chunk.box.start[0], std::ssize(values));
    for (int64_t i = 0; i < chunk.box.extent[0]; ++i) {
      values.push_back(file.at(chunk.offset_bytes / 4 + i));
    }
  }
  return values;
}

// The row-major index in the whole parameter of each of a rank's elements.
std::vector<int64_t> IndicesByLoops(Split split, const ckpt::Shape& whole,
                                    int64_t num_sources, int64_t rank) {
  const int64_t rows = whole[0];
  const int64_t columns = whole.size() > 1 ? whole[1] : 1;
  std::vector<int64_t> indices;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      int64_t owner = rank;
      if (split == Split::kColumns) {
        owner = c * kTensorRanks / columns;
      } else if (split != Split::kReplicated) {
        // Within its source.
        owner = r * num_sources % rows * kTensorRanks / rows;
      }
      if (owner == rank) indices.push_back(r * columns + c);
    }
  }
  return indices;
}

ModelConfig Model() {
  ModelConfig model;
  model.num_layers = 1;
  model.hidden_size = 8;
  model.ffn_hidden_size = 12;
  model.num_attention_heads = 4;
  model.num_query_groups = 2;
  model.kv_channels = 2;
  model.vocab_size = 9;
  model.padded_vocab_size = 16;
  model.max_position_embeddings = 4;
  model.swiglu = true;
  model.add_bias_linear = true;
  model.untie_embeddings_and_output_weights = true;
  return model;
}

TEST(LocalImageTest, EveryParameterIsFoundInItsTensor) {
  std::mt19937 random(3);
  Layout layout;
  layout.tensor = kTensorRanks;
  const ModelMap map(Model(), layout);
  const LocalBuffer whole = ModelMap(Model(), Layout{}).MakeBuffer({});
  for (int64_t rank = 0; rank < kTensorRanks; ++rank) {
    const LocalBuffer buffer = map.MakeBuffer({.tensor = rank});
    ASSERT_EQ(buffer.parameters.size(), whole.parameters.size());
    for (size_t p = 0; p < whole.parameters.size(); ++p) {
      const Parameter& parameter = buffer.parameters[p];
      SCOPED_TRACE(parameter.name);
      ckpt::Shape shape = {3, 2};  // stacked; this one at [2,1]
      const ckpt::Shape& own = whole.parameters[p].shape;
      shape.insert(shape.end(), own.begin(), own.end());
      const Stored stored = StoreIn(shape, random);
      ASSERT_OK_AND_ASSIGN(
          const SourceTensor image,
          LocalImage(parameter, {.ranks = kTensorRanks, .rank = rank},
                     stored.tensor, {2, 1}));
      const bool is_gated = parameter.split == Split::kRows &&
                            whole.parameters[p].pieces.size() == 2;
      std::vector<int64_t> expected =
          IndicesByLoops(parameter.split, own, is_gated ? 2 : 1, rank);
      const int64_t before = 5 * whole.parameters[p].num_elements();
      for (int64_t& index : expected) index += before;
      EXPECT_EQ(ValuesOf(image, stored.values), expected);
    }
  }
}

TEST(LocalImageTest, RangesOfItGoElsewhere) {
  std::mt19937 random(8);
  const Stored stored = StoreIn({40}, random);
  SourceTensor flat = stored.tensor;
  std::sort(
      flat.chunks.begin(), flat.chunks.end(),
      [](const SourceChunk& a, const SourceChunk& b) { return a.box < b.box; });
  for (int64_t begin = 0; begin < 40; ++begin) {
    for (int64_t end = begin + 1; end <= 40; ++end) {
      SourceTensor into;
      AppendRange(flat, begin, end, 0, into);
      const std::vector<int64_t> values = ValuesOf(into, stored.values);
      ASSERT_EQ(std::ssize(values), end - begin);
      EXPECT_EQ(values.front(), begin);
      EXPECT_EQ(values.back(), end - 1);
    }
  }
  SourceTensor into;
  AppendRange(flat, 3, 4, 17, into);
  ASSERT_EQ(into.chunks.size(), 1);
  EXPECT_EQ(into.chunks[0].box, (ckpt::Box{{17}, {1}}));
}

TEST(LocalImageTest, AnotherShapeIsRefused) {
  Parameter parameter{.name = "p", .split = Split::kRows, .shape = {4, 3}};
  SourceTensor stored;
  stored.key = "optimizer.state.param.p";
  stored.shape = {7, 3};
  stored.chunks.push_back({ckpt::WholeBox(stored.shape), 0, 0, 0});
  EXPECT_THAT(LocalImage(parameter, {.ranks = 2, .rank = 1}, stored, {}),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("optimizer.state.param.p has shape [7,3], by "
                                 "the arguments it ends in [8,3]")));
  stored.shape = {8, 3};
  stored.chunks[0] = {ckpt::WholeBox(stored.shape), 0, 0, 8};
  parameter.split = Split::kVocabulary;
  EXPECT_THAT(LocalImage(parameter, {.ranks = 2, .rank = 1}, stored, {}),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("column by column")));
}

}  // namespace
}  // namespace shardshift::reshard
