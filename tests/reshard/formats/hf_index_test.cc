// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/hf_index.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/formats/hf_config.h"
#include "reshard/formats/hf_names.h"
#include "reshard/formats/hf_shards.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/formats/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A folder to change before it is read.
class HfFolderTest : public ::testing::Test {
 protected:
  HfFolderTest() : dir_(ckpt::InMemory()) {}

  std::string Path(const std::string& name) const {
    return ckpt::JoinPath(dir_.path(), name);
  }
  void Write(const std::string& name, const std::string& bytes) const {
    ckpt::WriteFile(Path(name), bytes);
  }
  // A file with tensors of a byte each.
  void WriteTensors(const std::string& name,
                    const std::vector<std::string>& tensors) const {
    json header = json::object();
    for (size_t i = 0; i < tensors.size(); ++i) {
      header[tensors[i]] = {
          {"dtype", "U8"}, {"shape", {1}}, {"data_offsets", {i, i + 1}}};
    }
    Write(name, SafetensorsBytes(header.dump(), tensors.size()));
  }
  void WriteIndex(const json& map) const {
    Write(kHfIndexName, json({{"weight_map", map}}).dump());
  }
  void ExpectRefused(absl::StatusCode code, const std::string& word,
                     const std::string& other = "") const {
    EXPECT_THAT(ReadHfFolder(dir_.path()),
                StatusIs(code, AllOf(HasSubstr(word), HasSubstr(other))));
  }

  const ckpt::TempDir dir_;
};

TEST_F(HfFolderTest, ReadsASingleFile) {
  RestoreFolder("llama", dir_.path());
  ASSERT_OK_AND_ASSIGN(const HfFolder folder, ReadHfFolder(dir_.path()));
  ASSERT_EQ(folder.files.size(), 1);
  EXPECT_EQ(folder.files[0].name, "model.safetensors");
  EXPECT_EQ(folder.files[0].num_bytes, 646824);
  EXPECT_EQ(folder.metadata.at("format"), "pt");
  EXPECT_EQ(folder.tensors.size(), 39);
  EXPECT_TRUE(std::is_sorted(folder.tensors.begin(), folder.tensors.end(),
                             [](const HfTensor& a, const HfTensor& b) {
                               return a.tensor.name < b.tensor.name;
                             }));
  ASSERT_OK_AND_ASSIGN(const auto config, ReadHfConfigText(dir_.path()));
  EXPECT_EQ(config, ReadData("llama/config.json"));
}

TEST_F(HfFolderTest, ReadsAnIndexToTheSameTensors) {
  RestoreFolder("llama", dir_.path());
  ASSERT_OK_AND_ASSIGN(const HfFolder whole, ReadHfFolder(dir_.path()));
  const ckpt::TempDir sharded(ckpt::InMemory());
  RestoreFolder("llama/sharded", sharded.path());
  ckpt::WriteFile(ckpt::JoinPath(sharded.path(), "other.safetensors"), "?");
  ASSERT_OK_AND_ASSIGN(const HfFolder folder, ReadHfFolder(sharded.path()));
  EXPECT_EQ(folder.files.size(), 4);
  EXPECT_THAT(folder.unlisted, IsEmpty());
  ASSERT_EQ(folder.tensors.size(), whole.tensors.size());
  for (size_t i = 0; i < whole.tensors.size(); ++i) {
    const SafetensorsTensor& tensor = folder.tensors[i].tensor;
    EXPECT_EQ(tensor.name, whole.tensors[i].tensor.name);
    EXPECT_EQ(tensor.shape, whole.tensors[i].tensor.shape);
    const HfFile& file = folder.files[folder.tensors[i].file];
    EXPECT_LE(tensor.end, file.num_bytes);
  }
}

TEST_F(HfFolderTest, TellsWhatTheIndexDoesNotName) {
  WriteTensors("a.safetensors", {"x", "y", "z"});
  WriteTensors("b.safetensors", {"x"});
  WriteIndex({{"y", "a.safetensors"}, {"x", "b.safetensors"}});
  ASSERT_OK_AND_ASSIGN(const HfFolder folder, ReadHfFolder(dir_.path()));
  EXPECT_THAT(folder.unlisted,
              ElementsAre("a.safetensors: \"x\"", "a.safetensors: \"z\""));
  ASSERT_EQ(folder.tensors.size(), 2);
  EXPECT_EQ(folder.files[folder.tensors[0].file].name, "b.safetensors");
  EXPECT_EQ(folder.tensors[1].tensor.name, "y");
}

TEST_F(HfFolderTest, NamesWhatIsMissing) {
  WriteTensors("a.safetensors", {"x", "z"});
  WriteIndex({{"x", "a.safetensors"}, {"y", "b.safetensors"}});
  ExpectRefused(absl::StatusCode::kDataLoss, "b.safetensors",
                "where \"y\" should be, is missing");
  for (const char* absent : {"w", "y", "zz"}) {
    WriteIndex({{"x", "a.safetensors"}, {absent, "a.safetensors"}});
    ExpectRefused(absl::StatusCode::kDataLoss,
                  absl::StrCat("tensor \"", absent, "\" should be in"),
                  "index.json");
  }
  std::filesystem::remove(Path(kHfIndexName));
  ExpectRefused(absl::StatusCode::kNotFound, "has no model.safetensors",
                "but a.safetensors; rename it");
  Write("b.safetensors", "");
  ExpectRefused(absl::StatusCode::kNotFound, "a.safetensors, b.safetensors",
                "get the index");
  std::filesystem::remove(Path("a.safetensors"));
  std::filesystem::remove(Path("b.safetensors"));
  Write("pytorch_model.bin", "");
  ExpectRefused(absl::StatusCode::kUnimplemented, "pytorch_model.bin",
                "safe_serialization");
  ASSERT_OK_AND_ASSIGN(const auto config, ReadHfConfigText(dir_.path()));
  EXPECT_EQ(config, std::nullopt);
}

TEST_F(HfFolderTest, RefusesAFileAndAnIndex) {
  WriteTensors(kHfWeightsName, {"x"});
  WriteIndex({{"x", "model.safetensors"}});
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "has both");
}

TEST_F(HfFolderTest, RefusesNamesThatLeadOutOfTheFolder) {
  for (const char* name :
       {"../a.safetensors", "/a.safetensors", "b/a.safetensors", "..", ".", "",
        "b\\a.safetensors", "a\nb"}) {
    WriteIndex({{"x", name}});
    ExpectRefused(absl::StatusCode::kDataLoss, "\"x\"",
                  "is not the name of a file in the folder");
  }
  Write(kHfIndexName, R"({"weight_map":{"x":"a\u0000.safetensors"}})");
  ExpectRefused(absl::StatusCode::kDataLoss, "is not the name");
}

TEST_F(HfFolderTest, RefusesBadIndexes) {
  for (const char* text : {"[]", "{}", "7", R"({"weight_map":[]})",
                           R"({"weight_map":{}})", R"({"weight_map":{"x":7}})",
                           "{", "", R"({"weight_map":{"x":"a","x":"b"}})"}) {
    Write(kHfIndexName, text);
    ExpectRefused(absl::StatusCode::kDataLoss, kHfIndexName);
  }
  WriteTensors("a.safetensors", {"x"});
  WriteIndex({{"x", "a.safetensors"}});
  std::filesystem::resize_file(Path("a.safetensors"), 30);
  ExpectRefused(absl::StatusCode::kDataLoss, "a.safetensors", "cut off");
  std::filesystem::resize_file(Path(kHfIndexName), kMaxHfJsonBytes + 1);
  ExpectRefused(absl::StatusCode::kFailedPrecondition, kHfIndexName,
                "expected at most");
}

TEST(HfIndexText, IsWhatTransformersWrites) {
  const std::string text =
      ReadData("llama/sharded/model.safetensors.index.json");
  ASSERT_OK_AND_ASSIGN(std::vector<HfPlace> places, ParseHfIndex(text));
  EXPECT_EQ(places.size(), 39);
  std::reverse(places.begin(), places.end());
  EXPECT_EQ(HfIndexText(places, 642816, 160704), text);
}

// The very files of transformers, from the configuration alone.
TEST(PlanShards, SplitsAsTransformersDoes) {
  ASSERT_OK_AND_ASSIGN(const HfConfig config,
                       ParseHfConfig(ReadData("llama/config.json")));
  ASSERT_OK_AND_ASSIGN(const auto tensors,
                       HfTensors(config.model, {.family = config.family}));
  std::vector<int64_t> sizes;
  sizes.reserve(tensors.size());
  for (const StoredTensor& tensor : tensors) {
    sizes.push_back(4 * ckpt::NumElements(tensor.shape));
  }
  const auto shards = PlanShards(sizes, 200'000);
  std::map<std::string, std::string> expected;
  ASSERT_OK_AND_ASSIGN(
      const auto places,
      ParseHfIndex(ReadData("llama/sharded/model.safetensors.index.json")));
  for (const HfPlace& place : places) expected[place.tensor] = place.file;
  std::map<std::string, std::string> planned;
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    for (const int64_t tensor : shards[shard]) {
      planned[tensors[tensor].name] = ShardName(
          static_cast<int64_t>(shard), static_cast<int64_t>(shards.size()));
    }
  }
  EXPECT_EQ(planned, expected);
}

// What huggingface_hub 2.4 gives for files of 10 bytes.
TEST(PlanShards, SplitsAsTheHubDoes) {
  using Sizes = std::vector<int64_t>;
  using Shards = std::vector<std::vector<int64_t>>;
  const std::vector<std::pair<Sizes, Shards>> cases = {
      {{6, 6, 2, 6, 2, 2}, {{0}, {1, 2}, {3, 4, 5}}},
      {{11, 1, 2, 30, 4, 4, 3}, {{0}, {3}, {1, 2, 4}, {5, 6}}},
      {{10, 10}, {{0}, {1}}},
      {{1}, {{0}}},
      {{4, 7, 12, 3, 3, 3, 1, 9}, {{0}, {2}, {1, 3}, {4, 5, 6}, {7}}},
      {{}, {{}}},
      {{0, 10, 0}, {{0, 1, 2}}}};
  for (const auto& [sizes, shards] : cases) {
    EXPECT_EQ(PlanShards(sizes, 10), shards);
  }
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(PlanShards(Sizes{kHuge, kHuge}, kHuge), (Shards{{0}, {1}}));
}

TEST(ShardName, CountsFromOne) {
  EXPECT_EQ(ShardName(0, 1), "model.safetensors");
  EXPECT_EQ(ShardName(1, 12), "model-00002-of-00012.safetensors");
  EXPECT_EQ(ShardName(99999, 100001), "model-100000-of-100001.safetensors");
}

TEST(ParseShardBytes, TakesUnitsOfThousands) {
  for (const auto& [text, bytes] : std::vector<std::pair<const char*, int64_t>>{
           {"5GB", 5'000'000'000},
           {" 1.5 tb ", 1'500'000'000'000},
           {"200KB", 200'000},
           {"10mb", 10'000'000},
           {"1000", 1000}}) {
    ASSERT_OK_AND_ASSIGN(const int64_t parsed, ParseShardBytes(text));
    EXPECT_EQ(parsed, bytes) << text;
  }
  for (const char* text : {"", "GB", "5GiB", "-5GB", "0", "0.5", "5 G B", "nan",
                           "inf", "1e9", "1..5GB", "99999999999TB", "0x10"}) {
    EXPECT_THAT(ParseShardBytes(text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("expected one like 5GB")))
        << text;
  }
}

}  // namespace
}  // namespace shardshift::reshard
