// Distributed checkpoints of safetensors files: ones that PyTorch 2.15 wrote,
// whose values are coded by tensor and position, and ones that are wrong.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/dcp_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "reshard/formats/dcp_metadata.h"
#include "reshard/formats/format.h"
#include "reshard/formats/generic.h"
#include "reshard/formats/pickle_writer.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/formats/generic_sample.h"
#include "tests/reshard/formats/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using absl::StatusCode;
using ckpt::DType;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Element i of tensor `t`, as the script that saved it has it: its bits.
uint64_t CodedBits(DType dtype, int64_t t, int64_t i) {
  const int64_t u = (i * 2654435761 + t * 40503) & 0xFFFFFF;
  if (dtype == DType::kI64) return static_cast<uint64_t>(u - (1 << 23));
  const auto bits = std::bit_cast<uint32_t>(
      static_cast<float>(std::ldexp(static_cast<double>(u) - 0x1p23, -23)));
  if (dtype == DType::kF32) return bits;
  // The nearest bfloat16; of two, the even one.
  return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
}

std::string CodedBytes(DType dtype, int64_t t, const ckpt::Shape& shape) {
  std::string bytes;
  for (int64_t i = 0; i < ckpt::NumElements(shape); ++i) {
    const uint64_t bits = CodedBits(dtype, t, i);
    bytes.append(reinterpret_cast<const char*>(&bits), ckpt::ItemSize(dtype));
  }
  return bytes;
}

struct Expected {
  std::string key;
  DType dtype;
  ckpt::Shape shape;
};

// `expected[t]` is tensor t.
void ExpectTensors(const std::string& path,
                   const std::vector<Expected>& expected) {
  ASSERT_OK_AND_ASSIGN(const OpenedSource source, OpenGeneric(path));
  EXPECT_EQ(source.format, Format::kDcp);
  std::map<std::string, std::string> bytes = BytesOf(source);
  EXPECT_EQ(bytes.size(), expected.size());
  for (size_t t = 0; t < expected.size(); ++t) {
    const Expected& tensor = expected[t];
    EXPECT_EQ(bytes[tensor.key], CodedBytes(tensor.dtype, t, tensor.shape))
        << tensor.key;
    const GenericName name = NameOfKey(tensor.key);
    ASSERT_OK_AND_ASSIGN(const int64_t index,
                         source.reader->FindTensor(name.tensor, name.role));
    EXPECT_EQ(source.reader->table().tensors[index].shape, tensor.shape);
    EXPECT_EQ(source.reader->table().tensors[index].dtype, tensor.dtype);
  }
}

// FileSystemWriter with SerializationFormat.SAFETENSORS, by two processes.
TEST(DcpShards, OfAFileSystemWriter) {
  ExpectTensors(DataPath("dcp-safetensors"),
                {{"cols_uneven", DType::kF32, {7, 9}},
                 {"ints", DType::kI64, {13}},
                 {"last_of_three", DType::kBF16, {2, 3, 13}},
                 {"replicated", DType::kF32, {4, 4}},
                 {"rows_fewer_than_ranks", DType::kBF16, {2, 5}},
                 {"rows_uneven", DType::kF32, {10, 6}},
                 {"scalar_replicated", DType::kF32, {}},
                 {"vector", DType::kF32, {17}}});
}

// HuggingFaceStorageWriter with save_distributed, by two processes.
TEST(DcpShards, OfAHuggingFaceWriter) {
  ExpectTensors(DataPath("dcp-shards"),
                {{"lm_head.weight", DType::kBF16, {29, 8}},
                 {"model.embed_tokens.weight", DType::kBF16, {29, 8}},
                 {"model.layers.0.up.weight", DType::kBF16, {10, 8}},
                 {"model.layers.1.up.weight", DType::kBF16, {10, 8}},
                 {"model.norm.weight", DType::kF32, {8}}});
}

TEST(ShardName, IsThatOfTheWriter) {
  EXPECT_TRUE(IsShardName("shard-00001-model-00002-of-00003.safetensors"));
  EXPECT_TRUE(IsShardName("shard-123456-model-00002-of-00003.safetensors"));
  for (const char* other :
       {"model-00001-of-00002.safetensors", "model.safetensors", "",
        "shard-1-model-00002-of-00003.safetensors",
        "shard-00001-model-00002-of-00003.bin",
        "shard-00001-model-00002-of-00003.safetensors.tmp",
        "shard-0000a-model-00002-of-00003.safetensors",
        "shard-00001-model--0002-of-00003.safetensors",
        "shard-99999999999999999999-model-00002-of-00003.safetensors"}) {
    EXPECT_FALSE(IsShardName(other)) << other;
  }
}

// One rank's part of a tensor in a file of its own.
struct Part {
  ckpt::Shape offsets;
  ckpt::Shape extent;
  std::string dtype = "U8";
};

class ShardDirectoryTest : public ::testing::Test {
 protected:
  ShardDirectoryTest() : dir_(ckpt::InMemory()) {}

  std::string Path(const std::string& name) const {
    return ckpt::JoinPath(dir_.path(), name);
  }

  static std::string Name(int64_t rank, int64_t file = 1, int64_t files = 1) {
    return absl::StrCat("shard-0000", rank, "-model-0000", file, "-of-0000",
                        files, ".safetensors");
  }

  // A file of tensor "w", whose bytes all are `value`.
  static std::string Bytes(const Part& part, const json& info,
                           const json& version = "1.0", char value = 1) {
    const int64_t item = part.dtype == "U8" ? 1 : 4;
    const int64_t num_bytes = ckpt::NumElements(part.extent) * item;
    json header = {{"w",
                    {{"dtype", part.dtype},
                     {"shape", part.extent},
                     {"data_offsets", {0, num_bytes}}}}};
    if (!info.is_null()) {
      header["__metadata__"]["DCP_SHARDING_INFO"] =
          info.is_string() ? info.get<std::string>() : info.dump();
    }
    if (!version.is_null()) header["__metadata__"]["DCP_VERSION"] = version;
    std::string bytes = SafetensorsBytes(header.dump());
    return bytes.append(num_bytes, value);
  }

  void Write(const std::string& name, const Part& part, char value = 1) const {
    ckpt::WriteFile(
        Path(name),
        Bytes(part, {{"w", {{"saved_offsets", part.offsets}}}}, "1.0", value));
  }

  void WriteParts(const std::vector<Part>& parts) const {
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      Write(Name(static_cast<int64_t>(rank) + 1), parts[rank],
            static_cast<char>('a' + rank));
    }
  }

  void ExpectRefused(StatusCode code, const std::string& word,
                     const std::string& other = "") const {
    EXPECT_THAT(OpenGeneric(dir_.path()),
                StatusIs(code, AllOf(HasSubstr(dir_.path()), HasSubstr(word),
                                     HasSubstr(other))));
  }

  const ckpt::TempDir dir_;
};

TEST_F(ShardDirectoryTest, PartsMakeUpATensorInAnyOrder) {
  WriteParts(
      {{{1, 2}, {1, 2}}, {{0, 0}, {1, 4}}, {{2, 0}, {0, 4}}, {{1, 0}, {1, 2}}});
  ASSERT_OK_AND_ASSIGN(const OpenedSource source, OpenGeneric(dir_.path()));
  EXPECT_EQ(BytesOf(source)["w"], "bbbbddaa");
  ASSERT_EQ(source.notes.size(), 1);
  EXPECT_THAT(source.notes[0], HasSubstr("there are 4 files"));
}

TEST_F(ShardDirectoryTest, AnEmptyTensorIsThere) {
  WriteParts({{{0, 0}, {0, 3}}, {{0, 0}, {0, 3}}});
  ASSERT_OK_AND_ASSIGN(const OpenedSource source, OpenGeneric(dir_.path()));
  EXPECT_EQ(source.reader->table().tensors[0].shape, (ckpt::Shape{0, 3}));
}

TEST_F(ShardDirectoryTest, WholeFilesAreWhatTheyAre) {
  Write("model-00001-of-00001.safetensors", {{0}, {3}});
  ckpt::WriteFile(Path("model.safetensors.index.json"),
                  R"({"weight_map":{"w":"model-00001-of-00001.safetensors"}})");
  ASSERT_OK_AND_ASSIGN(const OpenedSource folder, OpenGeneric(dir_.path()));
  EXPECT_EQ(folder.format, Format::kSafetensors);
  OpenOptions options = {.from = Format::kDcp};
  options.foreign.generic = true;
  ASSERT_OK_AND_ASSIGN(const OpenedSource shards,
                       OpenSource(dir_.path(), options));
  EXPECT_EQ(BytesOf(shards), BytesOf(folder));
  // The shards beside them are another spelling of the same.
  Write(Name(1), {{0}, {3}});
  ASSERT_OK_AND_ASSIGN(const auto format, DetectFormat(dir_.path()));
  EXPECT_EQ(format, Format::kSafetensors);
}

TEST_F(ShardDirectoryTest, RefusesPartsThatDoNotMakeUpATensor) {
  WriteParts({{{0, 0}, {2, 3}}, {{1, 0}, {2, 3}}});
  ExpectRefused(StatusCode::kDataLoss, "\"w\" has chunks that do not make it",
                "both hold [1:2,0:3]");
  WriteParts({{{0, 0}, {2, 3}}, {{3, 0}, {2, 3}}});
  ExpectRefused(StatusCode::kDataLoss, "do not make it up",
                "3 of the 15 elements");
  WriteParts({{{0, 0}, {2, 3}}, {{2, 0}, {2, 3}, "F32"}});
  ExpectRefused(StatusCode::kDataLoss, "\"w\": is in one file U8",
                "in another F32 of 2");
  WriteParts({{{0, 0}, {2, 3}}, {{2}, {2}}});
  ExpectRefused(StatusCode::kDataLoss, "in another U8 of 1");
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max();
  WriteParts({{{0, 0}, {2, 3}}, {{kFar - 2, 0}, {2, 3}}});
  ExpectRefused(StatusCode::kDataLoss, "\"w\"");
  WriteParts({{{0, 0}, {2, 3}}, {{kFar - 1, 0}, {2, 3}}});
  ExpectRefused(StatusCode::kDataLoss, Name(2), "as far as 64 bits go");
}

TEST_F(ShardDirectoryTest, RefusesOffsetsThatAreNone) {
  const Part part = {{0, 0}, {2, 3}};
  const auto expect = [&](const json& info, const std::string& word) {
    ckpt::WriteFile(Path(Name(1)), Bytes(part, info));
    ExpectRefused(StatusCode::kDataLoss, Name(1), word);
  };
  const auto offsets = [](const json& list) -> json {
    return {{"w", {{"saved_offsets", list}}}};
  };
  expect(offsets({0}), "has 1 numbers, but the chunk is [2,3]");
  expect(offsets({0, -1}), "holds \"-1\"");
  expect(offsets({0, 1.5}), "holds \"1.5\"");
  expect(offsets({0, nullptr}), "holds \"null\"");
  expect(offsets({0, json::array()}), "holds \"[]\"");
  expect(offsets({0, uint64_t{1} << 63}), "as far as 64 bits go");
  expect(offsets(7), "has no list saved_offsets");
  expect({{"w", 7}}, "has no list saved_offsets");
  expect({{"v", 7}}, "\"w\" is not there");
  expect(json::object(), "has 0 tensors, but the file has 1");
  expect(json::array({1}), "has 0 tensors");
  expect("{", "DCP_SHARDING_INFO: ");
  expect(R"({"w":1,"w":1})", "DCP_SHARDING_INFO: ");
  expect(std::string(1000, '['), "DCP_SHARDING_INFO: ");
}

TEST_F(ShardDirectoryTest, RefusesFilesWithoutOffsetsAndOtherVersions) {
  const Part part = {{0}, {3}};
  const json info = {{"w", {{"saved_offsets", {0}}}}};
  ckpt::WriteFile(Path(Name(1)), Bytes(part, json()));
  ExpectRefused(StatusCode::kDataLoss, "has no DCP_SHARDING_INFO",
                "--from safetensors");
  ckpt::WriteFile(Path(Name(1)), Bytes(part, info, json()));
  ExpectRefused(StatusCode::kDataLoss, "no DCP_VERSION");
  ckpt::WriteFile(Path(Name(1)), Bytes(part, info, "2.0"));
  ExpectRefused(StatusCode::kUnimplemented, "\"2.0\", expected 1.0");
}

TEST_F(ShardDirectoryTest, RefusesMissingFiles) {
  Write(Name(1, 2, 2), {{0}, {3}});
  ExpectRefused(StatusCode::kDataLoss, "no shard of file 1 of 2");
  Write(Name(2, 1, 3), {{0}, {3}});
  ExpectRefused(StatusCode::kDataLoss, Name(2, 1, 3), "of 3 files");
  std::filesystem::remove(Path(Name(1, 2, 2)));
  ExpectRefused(StatusCode::kDataLoss, "no shard of file 2 of 3");
  EXPECT_THAT(
      OpenGeneric(Path(Name(2, 1, 3))),
      StatusIs(StatusCode::kFailedPrecondition, HasSubstr("name its folder")));
}

// The checkpoint with `.metadata`, changed before it is read.
class DcpSafetensorsTest : public ::testing::Test {
 protected:
  DcpSafetensorsTest() : dir_(ckpt::InMemory()) {
    RestoreFolder("dcp-safetensors", dir_.path());
  }

  std::string Path(const std::string& name) const {
    return ckpt::JoinPath(dir_.path(), name);
  }
  void Replace(const std::string& name, const std::string& what,
               const std::string& instead) const {
    const std::string bytes = ckpt::ReadFile(Path(name));
    ASSERT_EQ(what.size(), instead.size());
    ASSERT_NE(bytes.find(what), std::string::npos) << what;
    ckpt::WriteFile(Path(name), absl::StrReplaceAll(bytes, {{what, instead}}));
  }
  void ExpectRefused(StatusCode code, const std::string& word,
                     const std::string& other = "") const {
    EXPECT_THAT(OpenGeneric(dir_.path()),
                StatusIs(code, AllOf(HasSubstr(Path("__")), HasSubstr(word),
                                     HasSubstr(other))));
  }

  const ckpt::TempDir dir_;
};

TEST_F(DcpSafetensorsTest, RefusesAChunkElsewhere) {
  Replace("__1_0.distcp", "rows_uneven\\\": {\\\"saved_offsets\\\": [5, 0]",
          "rows_uneven\\\": {\\\"saved_offsets\\\": [0, 0]");
  ExpectRefused(StatusCode::kDataLoss,
                "has no chunk rows_uneven[5:10,0:6], but [0:5,0:6]",
                "keep the last");
}

TEST_F(DcpSafetensorsTest, RefusesAnotherTensor) {
  Replace("__1_0.distcp", "vector", "victor");
  ExpectRefused(StatusCode::kDataLoss, "has no chunk vector[9:17]",
                "none of that tensor");
}

TEST_F(DcpSafetensorsTest, RefusesAnotherDType) {
  Replace("__1_0.distcp", R"({"dtype":"F32","shape":[8],)",
          R"({"dtype":"I32","shape":[8],)");
  ExpectRefused(StatusCode::kDataLoss, "vector[9:17] is of I32",
                "32 bytes of F32");
}

TEST_F(DcpSafetensorsTest, RefusesAnotherVersion) {
  Replace("__0_0.distcp", R"("DCP_VERSION":"1.0")", R"("DCP_VERSION":"1.1")");
  ExpectRefused(StatusCode::kUnimplemented, "\"1.1\", expected 1.0");
}

TEST_F(DcpSafetensorsTest, RefusesAFileThatIsCutOff) {
  std::filesystem::resize_file(Path("__1_0.distcp"), 1400);
  ExpectRefused(StatusCode::kDataLoss, "are not within the");
}

}  // namespace
}  // namespace shardshift::reshard
