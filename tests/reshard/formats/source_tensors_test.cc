// Stored tensors in chunks, as pieces of logical ones.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/source_tensors.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/reader.h"
#include "reshard/formats/flat_buckets.h"
#include "reshard/formats/torch_dist_tensors.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::HasSubstr;

// Element i of a stored tensor is i; tests tell where each must come out.
class SourceTensorsTest : public ::testing::Test {
 protected:
  // Writes the values of `chunks` of a tensor of the shape into one file.
  SourceTensors Write(const ckpt::Shape& shape,
                      const std::vector<ckpt::Box>& chunks) {
    SourceTensors source;
    source.files.push_back({directory_.path() + "/file", 0});
    SourceTensor tensor;
    tensor.key = "stored";
    tensor.shape = shape;
    std::string bytes = "???";
    for (const ckpt::Box& box : chunks) {
      tensor.chunks.push_back({box, 0, std::ssize(bytes), 0});
      for (int64_t i = 0; i < ckpt::NumElements(box); ++i) {
        const auto value =
            static_cast<float>(ckpt::RowMajorIndex(shape, box, i));
        char item[sizeof value];
        std::memcpy(item, &value, sizeof value);
        bytes.append(item, sizeof value);
      }
    }
    ckpt::WriteFile(source.files[0].path, bytes);
    source.files[0].num_bytes = std::ssize(bytes);
    source.tensors.push_back(std::move(tensor));
    return source;
  }

  static std::vector<float> Read(ckpt::ForeignFilesBuilder& builder,
                                 const std::string& name) {
    absl::StatusOr<ckpt::ForeignFiles> files = builder.Build(0, "{}", "{}");
    EXPECT_OK(files);
    if (!files.ok()) return {};
    const auto reader = ckpt::Reader::OpenForeign(*std::move(files));
    const absl::StatusOr<int64_t> tensor = reader->FindTensor(name, "weight");
    EXPECT_OK(tensor);
    if (!tensor.ok()) return {};
    const ckpt::Box whole =
        ckpt::WholeBox(reader->table().tensors[*tensor].shape);
    std::vector<float> values(ckpt::NumElements(whole));
    EXPECT_OK(reader->ReadTensor(*tensor, whole,
                                 reinterpret_cast<std::byte*>(values.data())));
    return values;
  }

  const ckpt::TempDir directory_;
};

// Two layers stacked, cut into columns: neither chunk holds a whole row.
TEST_F(SourceTensorsTest, PiecesCrossChunksInAnyDirection) {
  const SourceTensors source = Write({2, 4, 6}, {{{0, 0, 0}, {2, 4, 2}},
                                                 {{0, 0, 2}, {1, 4, 4}},
                                                 {{1, 0, 2}, {1, 1, 4}},
                                                 {{1, 1, 2}, {1, 3, 4}}});
  const std::vector<LogicalTensor> tensors = {{"a", {3, 6}}, {"b", {5, 6}}};
  StoredTensor stored;
  stored.name = "stored";
  stored.shape = {2, 4, 6};
  // b has the last row of the first layer and all of the second.
  stored.pieces = {{0, {{0, 0}, {3, 6}}, 0},
                   {1, {{0, 0}, {1, 6}}, 18},
                   {1, {{1, 0}, {4, 6}}, 24}};
  ckpt::ForeignFilesBuilder builder("test");
  AddFiles(source, builder);
  ASSERT_OK(AddPieces(stored, source.tensors[0], tensors, "weight", builder));
  const std::vector<float> b = Read(builder, "b");
  ASSERT_EQ(b.size(), 30);
  for (size_t i = 0; i < b.size(); ++i) {
    EXPECT_EQ(b[i], 18.0f + static_cast<float>(i));
  }
}

TEST_F(SourceTensorsTest, ATransposedTensorHasItsRowsInColumns) {
  const SourceTensors source = Write({4, 6}, {{{0, 0}, {4, 6}}});
  const std::vector<LogicalTensor> tensors = {{"q", {2, 4}}, {"k", {4, 4}}};
  StoredTensor stored;
  stored.name = "stored";
  stored.shape = {4, 6};
  stored.transposed = true;
  stored.pieces = {{0, {{0, 0}, {2, 4}}, 0}, {1, {{0, 0}, {4, 4}}, 8}};
  ckpt::ForeignFilesBuilder builder("test");
  AddFiles(source, builder);
  ASSERT_OK(AddPieces(stored, source.tensors[0], tensors, "weight", builder));
  const std::vector<float> k = Read(builder, "k");
  ASSERT_EQ(k.size(), 16);
  for (int64_t row = 0; row < 4; ++row) {
    for (int64_t column = 0; column < 4; ++column) {
      EXPECT_EQ(k[row * 4 + column], static_cast<float>(column * 6 + 2 + row));
    }
  }
}

// As FSDP cuts what is stored transposed; one chunk lies column by column.
TEST_F(SourceTensorsTest, ATransposedTensorMayBeInChunks) {
  SourceTensors source =
      Write({4, 6}, {{{0, 0}, {1, 6}}, {{1, 0}, {3, 2}}, {{1, 2}, {3, 4}}});
  // The last chunk once more, the other way round, behind all others.
  SourceChunk& last = source.tensors[0].chunks[2];
  std::string bytes = ckpt::ReadFile(source.files[0].path);
  last.offset_bytes = std::ssize(bytes);
  last.column_pitch = 3;
  for (int column = 2; column < 6; ++column) {
    for (int row = 1; row < 4; ++row) {
      const auto value = static_cast<float>(row * 6 + column);
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
  }
  ckpt::WriteFile(source.files[0].path, bytes);
  source.files[0].num_bytes = std::ssize(bytes);
  const std::vector<LogicalTensor> tensors = {{"q", {1, 4}}, {"k", {5, 4}}};
  StoredTensor stored;
  stored.name = "stored";
  stored.shape = {4, 6};
  stored.transposed = true;
  stored.pieces = {{0, {{0, 0}, {1, 4}}, 0}, {1, {{0, 0}, {5, 4}}, 4}};
  ckpt::ForeignFilesBuilder builder("test");
  AddFiles(source, builder);
  ASSERT_OK(AddPieces(stored, source.tensors[0], tensors, "weight", builder));
  const std::vector<float> k = Read(builder, "k");
  ASSERT_EQ(k.size(), 20);
  for (int64_t row = 0; row < 5; ++row) {
    for (int64_t column = 0; column < 4; ++column) {
      EXPECT_EQ(k[row * 4 + column], static_cast<float>(column * 6 + 1 + row));
    }
  }
}

TEST_F(SourceTensorsTest, ColumnsAreRowsOfWhatIsNotTransposed) {
  // A file of the transpose: the values of [3,5], column by column.
  SourceTensors source = Write({5, 3}, {{{0, 0}, {5, 3}}});
  SourceTensor& tensor = source.tensors[0];
  tensor.shape = {3, 5};
  tensor.chunks[0].box = {{0, 0}, {3, 5}};
  tensor.chunks[0].column_pitch = 3;
  const std::vector<LogicalTensor> tensors = {{"a", {1, 5}}, {"b", {2, 5}}};
  StoredTensor stored;
  stored.name = "stored";
  stored.shape = {3, 5};
  stored.pieces = {{0, {{0, 0}, {1, 5}}, 0}, {1, {{0, 0}, {2, 5}}, 5}};
  ckpt::ForeignFilesBuilder builder("test");
  AddFiles(source, builder);
  ASSERT_OK(AddPieces(stored, tensor, tensors, "weight", builder));
  const std::vector<float> b = Read(builder, "b");
  ASSERT_EQ(b.size(), 10);
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t column = 0; column < 5; ++column) {
      EXPECT_EQ(b[row * 5 + column], static_cast<float>(column * 3 + 1 + row));
    }
  }
}

TEST_F(SourceTensorsTest, RefusesColumnsWithGapsAndOfNoMatrix) {
  SourceTensors source = Write({4, 6}, {{{0, 0}, {4, 6}}});
  StoredTensor stored;
  stored.name = "stored";
  stored.shape = {4, 3};
  stored.transposed = true;
  stored.pieces = {{0, {{0, 0}, {3, 4}}, 0}};
  SourceTensor& tensor = source.tensors[0];
  tensor.shape = stored.shape;
  tensor.chunks[0].box = ckpt::WholeBox(stored.shape);
  tensor.chunks[0].column_pitch = 5;
  ckpt::ForeignFilesBuilder builder("test");
  AddFiles(source, builder);
  EXPECT_THAT(
      AddPieces(stored, tensor, {{"a", {3, 4}}}, "weight", builder),
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("stored lies")));
  stored.transposed = false;
  stored.pieces = {{0, {{0}, {12}}, 0}};
  EXPECT_THAT(
      AddPieces(stored, tensor, {{"a", {12}}}, "weight", builder),
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("a is no matrix")));
}

TEST_F(SourceTensorsTest, AFlatParameterCrossesChunks) {
  const SourceTensors source =
      Write({20}, {{{0}, {7}}, {{7}, {4}}, {{11}, {9}}});
  const std::vector<LogicalTensor> tensors = {{"a", {3, 4}}};
  Parameter parameter;
  parameter.shape = {3, 4};
  parameter.pieces = {{0, {{0, 0}, {3, 4}}, 0}};
  ckpt::ForeignFilesBuilder builder("test");
  AddFiles(source, builder);
  ASSERT_OK(AddFlatParameter(parameter, 5, source.tensors[0], "weight", tensors,
                             builder));
  const std::vector<float> a = Read(builder, "a");
  ASSERT_EQ(a.size(), 12);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i], 5.0f + static_cast<float>(i));
  }
}

// distributed-optimizer.md 2.4: [2, 8, 16] over two ranks' columns.
TEST_F(SourceTensorsTest, FlatRangesOfShardsAreBoxesOfTheModel) {
  SourceTensor flat;
  flat.key = "optimizer.state.exp_avg.fc2";
  flat.shape = {2, 1, 2, 64};
  flat.chunks = {{{{1, 0, 1, 0}, {1, 1, 1, 19}}, 0, 100, 0},
                 {{{1, 0, 1, 19}, {1, 1, 1, 45}}, 0, 500, 0}};
  ASSERT_OK_AND_ASSIGN(const SourceTensor model,
                       InModelSpace(flat, {2, 8, 16}));
  EXPECT_EQ(model.shape, (ckpt::Shape{2, 8, 16}));
  // Element 19 is layer 1, row 2, column 8 + 3.
  const SourceChunk& third = model.chunks[2];
  EXPECT_EQ(third.box, (ckpt::Box{{1, 2, 11}, {1, 1, 5}}));
  EXPECT_EQ(third.offset_bytes, 500);
  EXPECT_EQ(model.chunks[1].box, (ckpt::Box{{1, 2, 8}, {1, 1, 3}}));
  EXPECT_EQ(model.chunks[1].offset_bytes, 100 + 16 * 4);

  EXPECT_THAT(InModelSpace(flat, {2, 8, 15}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("exp_avg.fc2")));
}

}  // namespace
}  // namespace shardshift::reshard
