// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/safetensors.h"

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "ckpt/core/coding.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/formats/sample.h"
#include "tests/testutil/heap_peak.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Reads `bytes` as a file.
absl::StatusOr<SafetensorsHeader> Read(const std::string& bytes) {
  const ckpt::TempDir dir(ckpt::InMemory());
  const std::string path = ckpt::JoinPath(dir.path(), "a.safetensors");
  ckpt::WriteFile(path, bytes);
  const auto file = ckpt::File::OpenForRead(path);
  EXPECT_OK(file);
  return ReadSafetensorsHeader(*file);
}

absl::StatusOr<SafetensorsHeader> ReadText(const std::string& text,
                                           size_t num_bytes = 0) {
  return Read(SafetensorsBytes(text, num_bytes));
}

// {"a": {...}} with one thing changed.
std::string OneTensor(const std::string& what = "",
                      const std::string& instead = "") {
  const std::string whole =
      R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";
  return absl::StrReplaceAll(whole, {{what.empty() ? "~" : what, instead}});
}

void ExpectRefused(const std::string& text, size_t num_bytes,
                   const std::string& word) {
  EXPECT_THAT(ReadText(text, num_bytes),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("a.safetensors"), HasSubstr(word))))
      << text.substr(0, 200);
}

TEST(ReadSafetensors, PlacesATensor) {
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header,
                       ReadText(OneTensor(), 24));
  const int64_t begin = 8 + std::ssize(OneTensor());
  EXPECT_EQ(header.tensors,
            (std::vector<SafetensorsTensor>{{.name = "a",
                                             .shape = {2, 3},
                                             .begin = begin,
                                             .end = begin + 24,
                                             .dtype = ckpt::DType::kF32}}));
  EXPECT_TRUE(header.metadata.empty());
}

TEST(ReadSafetensors, SortsByOffsetAndTakesEmptyOnes) {
  ASSERT_OK_AND_ASSIGN(
      const SafetensorsHeader header,
      ReadText(R"({"b":{"dtype":"U8","shape":[],"data_offsets":[4,5]},)"
               R"("c":{"shape":[9,0],"dtype":"F64","data_offsets":[4,4]},)"
               R"("__metadata__":{"format":"pt","x":"y"},)"
               R"("a":{"data_offsets":[0,4],"dtype":"I16","shape":[2]}}   )",
               5));
  ASSERT_EQ(header.tensors.size(), 3);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[1].name, "c");
  EXPECT_EQ(header.tensors[2].name, "b");
  EXPECT_EQ(header.tensors[2].shape, ckpt::Shape());
  EXPECT_EQ(header.metadata.at("format"), "pt");
}

TEST(ReadSafetensors, RefusesABadLength) {
  EXPECT_THAT(Read("1234567"), StatusIs(absl::StatusCode::kDataLoss,
                                        HasSubstr("has 7 bytes, too few")));
  const auto with_length = [](uint64_t length) {
    ckpt::Encoder encoder;
    encoder.PutU64(length);
    return encoder.bytes() + "{}";
  };
  EXPECT_OK(Read(with_length(2)));
  EXPECT_THAT(Read(with_length(3)),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("claims 3 bytes, but the file has only 10")));
  EXPECT_THAT(Read(with_length(0)), StatusIs(absl::StatusCode::kDataLoss,
                                             HasSubstr("begin with `{`")));
  for (const uint64_t huge :
       {uint64_t{100'000'001}, std::numeric_limits<uint64_t>::max(),
        uint64_t{1} << 63}) {
    EXPECT_THAT(Read(with_length(huge)),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("more than the 100000000")));
  }
}

TEST(ReadSafetensors, RefusesWhatIsNoJsonObject) {
  ExpectRefused(" {}", 0, "begin with `{`");
  ExpectRefused("[]", 0, "begin with `{`");
  ExpectRefused("{", 0, "no valid JSON");
  ExpectRefused("{}}", 0, "no valid JSON");
  ExpectRefused("{} {}", 0, "no valid JSON");
  ExpectRefused(std::string("{}\0 ", 4), 0, "a NUL");
  ExpectRefused("{\"\xff\":1}", 0, "no valid JSON");
  ExpectRefused("{\"a\xc0\xaf\":1}", 0, "no valid JSON");
  ExpectRefused(R"({"\ud800":1})", 0, "no valid JSON");
}

TEST(ReadSafetensors, RefusesWhatTheFormatDoesNotHave) {
  ExpectRefused(R"({"a":1})", 0, "\"a\" holds a number, expected an object");
  ExpectRefused(R"({"a":[]})", 0, "\"a\" holds an array");
  ExpectRefused(R"({"a":null})", 0, "\"a\" holds null");
  ExpectRefused(R"({"__metadata__":[]})", 0, "__metadata__");
  ExpectRefused(R"({"__metadata__":{"x":1}})", 0,
                "__metadata__: \"x\" holds a number, expected a string");
  ExpectRefused(R"({"__metadata__":{"x":{}}})", 0, "holds an object");
  ExpectRefused(R"({"__metadata__":{"x":["y"]}})", 0, "holds an array");
  ExpectRefused(OneTensor("24]", R"(24],"strides":[3,1])"), 24,
                "the key \"strides\"");
  ExpectRefused(OneTensor(R"("dtype":"F32",)"), 24, "\"a\" has no dtype");
  ExpectRefused(OneTensor(R"("shape":[2,3],)"), 24, "\"a\" has no shape");
  ExpectRefused(R"({"a":{"dtype":"F32","shape":[2]}})", 8,
                "\"a\" has no data_offsets");
  ExpectRefused(OneTensor("[2,3]", "6"), 24, "shape holds a number");
  ExpectRefused(OneTensor("[2,3]", "[[2],3]"), 24, "shape holds an array");
  ExpectRefused(OneTensor("[2,3]", "[\"2\",3]"), 24, "shape holds a string");
  ExpectRefused(OneTensor("\"F32\"", "32"), 24, "dtype holds a number");
  ExpectRefused(OneTensor("\"F32\"", "[]"), 24, "dtype holds an array");
  ExpectRefused(OneTensor("[0,24]", "[24]"), 24, "has 1 numbers, expected 2");
  ExpectRefused(OneTensor("[0,24]", "[0,24,24]"), 24, "a third offset");
}

TEST(ReadSafetensors, RefusesWhatComesTwice) {
  ExpectRefused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                2, "tensor \"a\" comes twice");
  ExpectRefused(OneTensor("[2,3]", R"([2,3],"shape":[6])"), 24,
                "has shape twice");
  ExpectRefused(R"({"__metadata__":{},"__metadata__":{}})", 0,
                "__metadata__ comes twice");
  ExpectRefused(R"({"__metadata__":{"x":"1","x":"2"}})", 0, "\"x\" twice");
}

TEST(ReadSafetensors, RefusesNumbersThatAreNoSizes) {
  for (const char* number :
       {"-1", "-0", "2.0", "2e0", "1e999", "9223372036854775808",
        "18446744073709551616", "123456789012345678901234567890", "null",
        "true"}) {
    const std::string list = absl::StrCat("[", number, ",24]");
    ExpectRefused(OneTensor("[2,3]", list), 24, "");
    ExpectRefused(OneTensor("[0,24]", list), 24, "");
  }
  ExpectRefused(OneTensor("[2,3]", "[-2,3]"), 24,
                "tensor \"a\": shape holds a negative number");
  ExpectRefused(OneTensor("[2,3]", "[2.0,3]"), 24, "no 64-bit integer");
  ExpectRefused(OneTensor("[0,24]", "[9223372036854775808,24]"), 24,
                "too large");
}

TEST(ReadSafetensors, RefusesSizesThatDisagree) {
  ExpectRefused(OneTensor("[2,3]", "[2,2]"), 24,
                "F32 [2,2] takes 16 bytes, but data_offsets [0,24] span 24");
  ExpectRefused(OneTensor("\"F32\"", "\"F64\""), 24, "takes 48 bytes");
  ExpectRefused(OneTensor("[2,3]", "[4294967296,4294967296]"), 24, "\"a\"");
  // The elements fit, their bytes do not: modulo 2^64 they are none.
  ExpectRefused(OneTensor("[2,3]", "[4611686018427387904]"), 24,
                "does not fit 64 bits");
  std::string many = "[1";
  for (int i = 0; i < 32; ++i) many += ",1";
  ExpectRefused(OneTensor("[2,3]", many + "]"), 24, "more than 32 dimensions");
}

TEST(ReadSafetensors, RefusesUnknownDTypes) {
  ExpectRefused(OneTensor("F32", "F31"), 24, "dtype \"F31\" is no dtype");
  for (const char* name : {"F4", "F6_E2M3", "F6_E3M2"}) {
    EXPECT_THAT(ReadText(OneTensor("F32", name), 24),
                StatusIs(absl::StatusCode::kUnimplemented,
                         AllOf(HasSubstr("\"a\""), HasSubstr(name),
                               HasSubstr("less than a byte"))));
  }
  EXPECT_THAT(ReadText(OneTensor("F32", "F8_E4M3FNUZ"), 24),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("F8_E4M3FNUZ is not supported")));
}

// Two tensors of 4 bytes with the given offsets.
std::string TwoTensors(const std::string& a, const std::string& b) {
  return absl::StrCat(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[)", a,
                      R"(]},"b":{"dtype":"F32","shape":[1],"data_offsets":[)",
                      b, "]}}");
}

TEST(ReadSafetensors, RefusesDataThatIsNotCoveredOnce) {
  EXPECT_OK(ReadText(TwoTensors("4,8", "0,4"), 8));
  ExpectRefused(TwoTensors("0,4", "3,7"), 7,
                "\"b\" begins before the end of \"a\": they overlap");
  ExpectRefused(TwoTensors("0,4", "0,4"), 4, "overlap");
  ExpectRefused(TwoTensors("0,4", "5,9"), 9, "there is a hole");
  ExpectRefused(TwoTensors("1,5", "5,9"), 9, "there is a hole");
  ExpectRefused(TwoTensors("0,4", "4,8"), 9, "1 bytes follow the last tensor");
  ExpectRefused(TwoTensors("0,4", "4,8"), 7, "not within the 7 bytes");
  ExpectRefused(TwoTensors("0,4", "8,4"), 8, "not within");
  ExpectRefused("{}", 1, "1 bytes follow");
  EXPECT_OK(ReadText("{}"));
}

TEST(ReadSafetensors, WithstandsDepth) {
  const std::string deep(1'000'000, '[');
  ExpectRefused(R"({"a":)" + deep, 0, "holds an array");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  ExpectRefused(objects, 0, "the key \"a\", which the format does not");
  ExpectRefused(R"({"__metadata__":{"a":)" + deep, 0, "holds an array");
}

TEST(ReadSafetensors, CutsLongNamesInErrors) {
  const std::string name(100'000, 'x');
  const auto header = ReadText(absl::StrCat("{\"", name, "\":1}"));
  EXPECT_LT(header.status().message().size(), 500);
}

// What takes the most memory for its text.
TEST(ReadSafetensors, TakesMemoryForTheHeaderOnly) {
  std::string tensors = "{";
  std::string metadata = R"({"__metadata__":{)";
  for (int i = 0; i < 20'000; ++i) {
    absl::StrAppend(&tensors, "\"", i,
                    R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)");
    absl::StrAppend(&metadata, "\"", i, R"(":"",)");
  }
  tensors.back() = '}';
  metadata.back() = '}';
  for (const std::string& text : {tensors, metadata + "}"}) {
    const HeapPeak peak;
    ASSERT_OK(ParseSafetensorsHeader(text, 8, 0));
    EXPECT_LT(peak.bytes(), 10 * std::ssize(text));
  }
}

SafetensorsHeader Unplaced(const SafetensorsHeader& header) {
  SafetensorsHeader unplaced = header;
  for (SafetensorsTensor& tensor : unplaced.tensors) {
    tensor.begin = tensor.end = 0;
  }
  return unplaced;
}

// Reads what the reference library wrote and writes it again.
TEST(LayOutSafetensors, WritesWhatTheReferenceWrites) {
  std::mt19937 random(1);
  for (const char* name : {"golden.safetensors", "golden_empty.safetensors"}) {
    const std::string bytes = ReadData(name);
    ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header, Read(bytes));
    SafetensorsHeader shuffled = Unplaced(header);
    std::shuffle(shuffled.tensors.begin(), shuffled.tensors.end(), random);
    ASSERT_OK_AND_ASSIGN(const SafetensorsLayout layout,
                         LayOutSafetensors(std::move(shuffled)));
    EXPECT_EQ(layout.header_bytes, bytes.substr(0, layout.header_bytes.size()));
    EXPECT_EQ(layout.file_bytes, std::ssize(bytes));
    EXPECT_EQ(layout.header, header);
  }
}

TEST(LayOutSafetensors, WritesWhatTransformersWrites) {
  std::vector<std::string> names = Models();
  names.insert(names.end(), Variants().begin(), Variants().end());
  for (const std::string& name : names) {
    if (name == "llama/sharded") continue;
    const ckpt::TempDir dir(ckpt::InMemory());
    RestoreFolder(name, dir.path());
    const std::string path = ckpt::JoinPath(dir.path(), "model.safetensors");
    ASSERT_OK_AND_ASSIGN(const auto file, ckpt::File::OpenForRead(path));
    ASSERT_OK_AND_ASSIGN(const auto header, ReadSafetensorsHeader(file));
    EXPECT_EQ(header.metadata.at("format"), "pt");
    ASSERT_OK_AND_ASSIGN(const auto layout,
                         LayOutSafetensors(Unplaced(header)));
    EXPECT_EQ(layout.header, header) << name;
    EXPECT_EQ(layout.header_bytes, ReadData(name + "/model.safetensors.head"));
  }
}

TEST(LayOutSafetensors, RefusesWhatCannotBeWritten) {
  const auto refused = [](std::vector<SafetensorsTensor> tensors,
                          const std::string& word) {
    EXPECT_THAT(
        LayOutSafetensors({.tensors = std::move(tensors), .metadata = {}}),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(word)));
  };
  const SafetensorsTensor a = {.name = "a", .shape = {2}};
  refused({a, a}, "\"a\" comes twice");
  refused({{.name = "__metadata__", .shape = {2}}}, "__metadata__");
  refused({{.name = "\xff", .shape = {2}}}, "no valid UTF-8");
  refused({{.name = "a", .shape = {int64_t{1} << 61}}}, "too large");
  refused({{.name = "a", .shape = {int64_t{1} << 60}},
           {.name = "b", .shape = {int64_t{1} << 60}}},
          "\"b\" [1152921504606846976] is too large");
  SafetensorsTensor long_name = a;
  long_name.name.resize(kMaxSafetensorsHeaderBytes, 'a');
  EXPECT_THAT(
      LayOutSafetensors({.tensors = {long_name}, .metadata = {}}),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("write more")));
}

}  // namespace
}  // namespace shardshift::reshard
