// Indexes that PyTorch 2.15 and Megatron-LM 0.14 wrote, and ones that are
// wrong.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/dcp_metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/formats/pickle_writer.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using absl::StatusCode;
using ckpt::Box;
using ckpt::DType;
using ckpt::Shape;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string DataPath(const std::string& name) {
  return ckpt::JoinPath(SHARDSHIFT_FORMATS_DATA, name);
}

// Element i of tensor `t`, as the script that saved it has it.
float Coded(int64_t t, int64_t i) {
  const int64_t u = (i * 2654435761 + t * 40503) & 0xFFFFFF;
  return static_cast<float>(std::ldexp(static_cast<double>(u) - 0x1p23, -23));
}

// The F32 tensor `fqn` of a checkpoint, from its chunks.
std::vector<float> Assembled(const std::string& directory,
                             const std::string& fqn) {
  const auto metadata = ReadDcpMetadata(directory);
  EXPECT_OK(metadata);
  const DcpTensor* tensor = metadata->FindTensor(fqn);
  EXPECT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->dtype, DType::kF32);
  std::vector<float> values(ckpt::NumElements(tensor->shape));
  for (const DcpChunk& chunk : tensor->chunks) {
    const auto file = ckpt::File::OpenForRead(
        ckpt::JoinPath(directory, metadata->files[chunk.place.file]));
    EXPECT_OK(file);
    const auto found = ResolveDcpChunk(*file, *tensor, chunk);
    EXPECT_OK(found);
    const auto bytes = ReadTensor(*file, *found, 1 << 20);
    EXPECT_OK(bytes);
    for (int64_t i = 0; i < ckpt::NumElements(chunk.box); ++i) {
      std::memcpy(&values[ckpt::RowMajorIndex(tensor->shape, chunk.box, i)],
                  bytes->data() + i * 4, 4);
    }
  }
  return values;
}

TEST(DcpMetadata, ChunksMakeUpTheTensor) {
  const struct {
    std::string fqn;
    int64_t number;
    int64_t size;
  } tensors[] = {{"model.block", 0, 77},
                 {"model.block_swapped", 1, 77},
                 {"model.cols_uneven", 2, 63},
                 {"model.hsdp", 4, 27},
                 {"model.hsdp_cols", 5, 27}};
  for (const auto& [fqn, number, size] : tensors) {
    const std::vector<float> values = Assembled(DataPath("dcp-dtensor"), fqn);
    ASSERT_EQ(values.size(), size);
    for (int64_t i = 0; i < size; ++i) {
      ASSERT_EQ(values[i], Coded(number, i)) << fqn << " " << i;
    }
  }
}

TEST(DcpMetadata, EmptyChunksAreLeftOut) {
  ASSERT_OK_AND_ASSIGN(const auto metadata,
                       ReadDcpMetadata(DataPath("dcp-dtensor")));
  const DcpTensor* few = metadata.FindTensor("model.rows_fewer_than_ranks");
  ASSERT_NE(few, nullptr);
  EXPECT_EQ(few->shape, (Shape{2, 5}));
  EXPECT_EQ(few->chunks.size(), 2);
  const DcpTensor* none = metadata.FindTensor("model.empty_rows");
  ASSERT_NE(none, nullptr);
  EXPECT_EQ(none->shape, (Shape{0, 3}));
  EXPECT_TRUE(none->chunks.empty());
  const DcpTensor* scalar = metadata.FindTensor("model.scalar_replicated");
  ASSERT_NE(scalar, nullptr);
  EXPECT_EQ(scalar->chunks.size(), 1);
  EXPECT_EQ(metadata.FindTensor("model"), nullptr);
}

TEST(DcpMetadata, RareDTypes) {
  const std::string directory = DataPath("dcp-rare");
  ASSERT_OK_AND_ASSIGN(const auto metadata, ReadDcpMetadata(directory));
  EXPECT_THAT(metadata.files, ElementsAre("__0_0.distcp"));
  EXPECT_EQ(metadata.FindTensor("f8e4m3")->dtype, DType::kF8E4M3);
  EXPECT_EQ(metadata.FindTensor("u16")->dtype, DType::kU16);
  ASSERT_OK_AND_ASSIGN(const auto file, ckpt::File::OpenForRead(ckpt::JoinPath(
                                            directory, "__0_0.distcp")));
  for (const DcpTensor& tensor : metadata.tensors) {
    ASSERT_OK_AND_ASSIGN(const auto found,
                         ResolveDcpChunk(file, tensor, tensor.chunks[0]));
    EXPECT_TRUE(found.IsDense());
    EXPECT_OK(ReadTensor(file, found, 1000));
  }
}

TEST(DcpMetadata, ByMegatron) {
  ASSERT_OK_AND_ASSIGN(const auto metadata,
                       ReadDcpMetadata(DataPath("megatron")));
  const DcpTensor* fc2 =
      metadata.FindTensor("decoder.layers.mlp.linear_fc2.weight");
  ASSERT_NE(fc2, nullptr);
  EXPECT_EQ(fc2->shape, (Shape{4, 32, 64}));
  EXPECT_EQ(fc2->dtype, DType::kBF16);
  ASSERT_EQ(fc2->chunks.size(), 4);
  EXPECT_EQ(fc2->chunks[0].box.extent, (Shape{1, 32, 64}));
  const DcpBytes* state = metadata.FindBytes(
      "decoder.layers.self_attention.linear_proj._extra_state/shard_0_4");
  ASSERT_NE(state, nullptr);
  EXPECT_GT(state->place.range.num_bytes, 0);
  EXPECT_EQ(metadata.FindBytes("none"), nullptr);
}

TEST(DcpMetadata, RefusesSafetensorsFiles) {
  const std::string directory = DataPath("dcp-safetensors");
  ASSERT_OK_AND_ASSIGN(const auto metadata, ReadDcpMetadata(directory));
  ASSERT_OK_AND_ASSIGN(const auto file, ckpt::File::OpenForRead(ckpt::JoinPath(
                                            directory, "__0_0.distcp")));
  const DcpTensor* tensor = metadata.FindTensor("rows_uneven");
  ASSERT_NE(tensor, nullptr);
  EXPECT_THAT(ResolveDcpChunk(file, *tensor, tensor->chunks[0]),
              StatusIs(StatusCode::kUnimplemented,
                       testing::AllOf(HasSubstr("rows_uneven[0:5,0:6]"),
                                      HasSubstr("looks like safetensors"))));
}

TEST(DcpMetadata, RefusesChunksOfAnotherShapeOrDType) {
  const std::string directory = DataPath("dcp-rare");
  ASSERT_OK_AND_ASSIGN(const auto metadata, ReadDcpMetadata(directory));
  ASSERT_OK_AND_ASSIGN(const auto file, ckpt::File::OpenForRead(ckpt::JoinPath(
                                            directory, "__0_0.distcp")));
  DcpTensor tensor = *metadata.FindTensor("i16");
  tensor.dtype = DType::kF16;
  EXPECT_THAT(ResolveDcpChunk(file, tensor, tensor.chunks[0]),
              StatusIs(StatusCode::kDataLoss,
                       HasSubstr("[7] of I16, expected [7] of F16")));
}

TEST(DcpMetadata, RefusesADirectoryWithoutIt) {
  const ckpt::TempDir dir;
  EXPECT_THAT(ReadDcpMetadata(dir.path()),
              StatusIs(StatusCode::kNotFound, HasSubstr("did not finish")));
}

constexpr char kModule[] = "torch.distributed.checkpoint.metadata";

PyValue Instance(const std::string& type, PyValue::Attributes attributes) {
  const bool info = type == "_StorageInfo";
  return PyValue::Object(
      info ? "torch.distributed.checkpoint.filesystem" : kModule, type,
      PyValue::Dict(std::move(attributes)));
}

PyValue Size(const Shape& shape) {
  return PyValue::Call("torch", "Size", {PyValue::IntTuple(shape)});
}

struct Chunk {
  Shape offsets;
  Shape sizes;
};

// A Metadata of one F32 tensor "w" of 4 x 6 in two halves and one byte item
// "b", all in one file, but for what is said otherwise.
struct Sample {
  Shape size = {4, 6};
  std::vector<Chunk> chunks = {{{0, 0}, {2, 6}}, {{2, 0}, {2, 6}}};
  PyValue dtype = PyValue::Global("torch", "float32");
  PyValue path = PyValue::Str("__0_0.distcp");
  int64_t offset = 0;
  int64_t length = 500;
  PyValue transforms = PyValue();
  int places_of_a_chunk = 1;
  int places_of_bytes = 1;
  std::string type = "Metadata";
};

PyValue IndexOf(const std::string& fqn, PyValue offset) {
  return Instance("MetadataIndex", {{"fqn", PyValue::Str(fqn)},
                                    {"index", PyValue()},
                                    {"offset", std::move(offset)}});
}

std::string Written(const Sample& sample) {
  const PyValue info =
      Instance("_StorageInfo", {{"relative_path", sample.path},
                                {"offset", PyValue::Int(sample.offset)},
                                {"length", PyValue::Int(sample.length)},
                                {"transform_descriptors", sample.transforms}});
  PyValue::Items chunks;
  PyValue::Entries places;
  for (const Chunk& chunk : sample.chunks) {
    chunks.push_back(Instance(
        "ChunkStorageMetadata",
        {{"offsets", Size(chunk.offsets)}, {"sizes", Size(chunk.sizes)}}));
    for (int i = 0; i < sample.places_of_a_chunk; ++i) {
      places.emplace_back(IndexOf("w", Size(chunk.offsets)), info);
    }
  }
  for (int i = 0; i < sample.places_of_bytes; ++i) {
    places.emplace_back(IndexOf("b", PyValue()), info);
  }
  const PyValue properties = PyValue::Object(kModule, "TensorProperties",
                                             PyValue::Tuple({sample.dtype}));
  const PyValue tensor =
      Instance("TensorStorageMetadata", {{"properties", properties},
                                         {"size", Size(sample.size)},
                                         {"chunks", PyValue::List(chunks)}});
  return WritePickle(Instance(
      sample.type,
      {{"state_dict_metadata",
        PyValue::Dict(PyValue::Attributes{
            {"w", tensor}, {"b", Instance("BytesStorageMetadata", {})}})},
       {"planner_data", PyValue()},
       {"storage_data", PyValue::Dict(places)}}));
}

void ExpectRefusal(const Sample& sample, StatusCode code,
                   const std::string& message) {
  EXPECT_THAT(ParseDcpMetadata(Written(sample)),
              StatusIs(code, HasSubstr(message)));
}

TEST(DcpMetadata, TheSample) {
  ASSERT_OK_AND_ASSIGN(const auto metadata, ParseDcpMetadata(Written({})));
  ASSERT_EQ(metadata.tensors.size(), 1);
  EXPECT_EQ(metadata.tensors[0].chunks[1].box, (Box{{2, 0}, {2, 6}}));
  EXPECT_EQ(metadata.bytes[0].place.range, (FileRange{0, 500}));
}

TEST(DcpMetadata, RefusesChunksThatDoNotMakeUpTheTensor) {
  ExpectRefusal({.chunks = {{{0, 0}, {2, 6}}}}, StatusCode::kDataLoss,
                "state_dict_metadata.w has chunks that do not make it up: 12 "
                "of the 24 elements");
  ExpectRefusal({.chunks = {}}, StatusCode::kDataLoss, "do not make it up");
  ExpectRefusal({.chunks = {{{0, 0}, {3, 6}}, {{2, 0}, {2, 6}}}},
                StatusCode::kDataLoss, "both hold [2:3,0:6]");
  ExpectRefusal({.chunks = {{{0, 0}, {2, 6}}, {{2, 0}, {3, 6}}}},
                StatusCode::kDataLoss, "outside the tensor of shape [4,6]");
  ExpectRefusal({.chunks = {{{0, 0}, {int64_t{1} << 62, 6}}}},
                StatusCode::kDataLoss, "outside the tensor");
  ExpectRefusal({.chunks = {{{0, int64_t{1} << 62}, {4, 6}}}},
                StatusCode::kDataLoss, "outside the tensor");
  ExpectRefusal({.chunks = {{{0}, {4, 6}}}}, StatusCode::kDataLoss,
                "outside the tensor");
  ExpectRefusal({.chunks = {{{-1, 0}, {4, 6}}}}, StatusCode::kDataLoss,
                "below 0");
  ExpectRefusal({.chunks = {{{0, 0}, {4, 6}}, {{0, 0}, {4, 6}}}},
                StatusCode::kDataLoss, "two places");
  ExpectRefusal({.size = {int64_t{1} << 40, int64_t{1} << 40}},
                StatusCode::kDataLoss, "is no size");
  ExpectRefusal({.size = Shape(100, 1)}, StatusCode::kDataLoss, "100 dims");
}

TEST(DcpMetadata, RefusesItemsWithoutAPlace) {
  ExpectRefusal({.places_of_a_chunk = 0}, StatusCode::kDataLoss,
                "(\"w\" at [0,0]) has no place");
  ExpectRefusal({.places_of_a_chunk = 2}, StatusCode::kDataLoss,
                "has two places");
  ExpectRefusal({.places_of_bytes = 0}, StatusCode::kDataLoss,
                "(\"b\") has no place");
}

TEST(DcpMetadata, RefusesPlacesOutsideTheDirectory) {
  for (const char* path :
       {"/etc/passwd", "../x", "a/../../x", "a/..", "", ".", "a//b", "a/"}) {
    ExpectRefusal({.path = PyValue::Str(path)}, StatusCode::kDataLoss,
                  absl::StrCat("is \"", path, "\", expected a file in the"));
  }
  EXPECT_OK(ParseDcpMetadata(Written({.path = PyValue::Str("a/b..c")})));
  ExpectRefusal({.path = PyValue::Int(1)}, StatusCode::kDataLoss,
                "expected a string");
  ExpectRefusal({.offset = -1}, StatusCode::kDataLoss, "offset -1");
  ExpectRefusal({.length = -1}, StatusCode::kDataLoss, "length -1");
  ExpectRefusal({.offset = int64_t{1} << 62, .length = int64_t{1} << 62},
                StatusCode::kDataLoss, "and length");
}

// The value as a part of a pickle: without protocol and end.
std::string Part(const PyValue& value) {
  const std::string pickle = WritePickle(value);
  return pickle.substr(2, pickle.size() - 3);
}

// A thousand tensors with one list of a thousand empty chunks, all of them
// one: a million, in a few kilobytes.
TEST(DcpMetadata, RefusesABombOfChunks) {
  const auto object = [](const std::string& type, const std::string& state) {
    return absl::StrCat("c", kModule, "\n", type, "\n)\x81}(", state, "ub");
  };
  const auto text = [](const std::string& utf8) {
    return Part(PyValue::Str(utf8));
  };
  const PyValue none = Size({0});
  std::string chunks =
      absl::StrCat("](",
                   Part(Instance("ChunkStorageMetadata",
                                 {{"offsets", none}, {"sizes", none}})),
                   "q\1");
  for (int i = 0; i < 1000; ++i) chunks += "h\1";
  const std::string storage = object(
      "TensorStorageMetadata",
      absl::StrCat(text("properties"),
                   Part(PyValue::Object(
                       kModule, "TensorProperties",
                       PyValue::Tuple({PyValue::Global("torch", "float32")}))),
                   text("size"), Part(none), text("chunks"), chunks, "e"));
  std::string tensors = absl::StrCat("}(", text("w"), storage, "q\2");
  for (int i = 0; i < 1000; ++i) {
    absl::StrAppend(&tensors, text(absl::StrCat("w", i)), "h\2");
  }
  const std::string pickle =
      absl::StrCat("\x80\2",
                   object("Metadata", absl::StrCat(text("storage_data"), "}",
                                                   text("state_dict_metadata"),
                                                   tensors, "u")),
                   ".");
  EXPECT_THAT(
      ParseDcpMetadata(pickle),
      StatusIs(StatusCode::kDataLoss, HasSubstr("used by too many tensors")));
}

TEST(DcpMetadata, RefusesTransformedItems) {
  ExpectRefusal({.transforms = PyValue::List({PyValue::Str("zstd")})},
                StatusCode::kUnimplemented, "was transformed");
  EXPECT_OK(ParseDcpMetadata(Written({.transforms = PyValue::List({})})));
}

TEST(DcpMetadata, RefusesOtherPickles) {
  ExpectRefusal({.type = "Metadatum"}, StatusCode::kDataLoss,
                "expected a Metadata");
  ExpectRefusal({.dtype = PyValue::Global("torch", "complex128")},
                StatusCode::kUnimplemented, "torch.complex128");
  ExpectRefusal({.dtype = PyValue()}, StatusCode::kDataLoss, "a dtype");
  EXPECT_THAT(ParseDcpMetadata("N."),
              StatusIs(StatusCode::kDataLoss, HasSubstr("a Metadata")));
  EXPECT_THAT(ParseDcpMetadata("cos\nsystem\n."),
              StatusIs(StatusCode::kPermissionDenied, HasSubstr("os.system")));
}

}  // namespace
}  // namespace shardshift::reshard
