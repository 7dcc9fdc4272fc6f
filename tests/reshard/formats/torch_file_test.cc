// Files that PyTorch, Megatron and DeepSpeed wrote, and ones that are wrong.
// data/make_values.py made data/values.pt and data/legacy.pt; the others are
// of PyTorch 2.15, Megatron-LM 0.14 and DeepSpeed 0.19.8.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/formats/common_values.h"
#include "reshard/formats/torch_dtype.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/formats/memory_file.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using absl::StatusCode;
using ckpt::DType;
using ckpt::Shape;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string DataPath(const std::string& name) {
  return ckpt::JoinPath(SHARDSHIFT_FORMATS_DATA, name);
}

// A file of data/, open and read.
class Opened {
 public:
  explicit Opened(const std::string& name)
      : file_(*ckpt::File::OpenForRead(DataPath(name))) {
    auto torch_file = TorchFile::Read(file_);
    EXPECT_OK(torch_file);
    torch_file_ = *std::move(torch_file);
  }

  PickleValue root() const { return torch_file_.root(); }
  PickleValue operator[](absl::string_view key) const {
    return *root().Get(key);
  }
  const TorchFile& torch_file() const { return torch_file_; }

  absl::StatusOr<TorchTensor> Tensor(absl::string_view key) const {
    return torch_file_.Tensor((*this)[key]);
  }
  template <typename Value>
  std::vector<Value> Values(const TorchTensor& tensor) const {
    const auto bytes = ReadTensor(file_, tensor, 1 << 20);
    EXPECT_OK(bytes);
    std::vector<Value> values(bytes->size() / sizeof(Value));
    if (!bytes->empty()) {
      std::memcpy(values.data(), bytes->data(), bytes->size());
    }
    return values;
  }
  template <typename Value>
  std::vector<Value> Values(absl::string_view key) const {
    const auto tensor = Tensor(key);
    EXPECT_OK(tensor);
    return Values<Value>(*tensor);
  }

 private:
  ckpt::File file_;
  TorchFile torch_file_;
};

TEST(TorchFile, ViewsOfOneStorage) {
  const Opened opened("values.pt");
  ASSERT_OK_AND_ASSIGN(const auto base, opened.Tensor("base"));
  ASSERT_OK_AND_ASSIGN(const auto transposed, opened.Tensor("transposed"));
  ASSERT_OK_AND_ASSIGN(const auto row, opened.Tensor("row"));
  EXPECT_EQ(base.shape, (Shape{2, 3}));
  EXPECT_EQ(base.strides, (Shape{3, 1}));
  EXPECT_EQ(base.dtype, DType::kF32);
  EXPECT_EQ(base.offset_bytes % 64, 0);
  EXPECT_EQ(base.storage, (FileRange{base.offset_bytes, 24}));
  EXPECT_TRUE(base.IsDense());
  EXPECT_EQ(transposed.storage, base.storage);
  EXPECT_EQ(transposed.shape, (Shape{3, 2}));
  EXPECT_EQ(transposed.strides, (Shape{1, 3}));
  EXPECT_FALSE(transposed.IsDense());
  EXPECT_EQ(row.storage_key, base.storage_key);
  EXPECT_EQ(row.offset_bytes, base.offset_bytes + 12);
  EXPECT_TRUE(row.IsDense());
  EXPECT_THAT(opened.Values<float>("base"), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(opened.Values<float>("transposed"),
              ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(opened.Values<float>("row"), ElementsAre(3, 4, 5));
  EXPECT_THAT(opened.Values<float>("expanded"), ElementsAre(3, 3, 3, 3));
}

TEST(TorchFile, ScalarsAndEmptyTensors) {
  const Opened opened("values.pt");
  EXPECT_EQ(opened.Tensor("scalar")->shape, Shape{});
  EXPECT_THAT(opened.Values<int64_t>("scalar"), ElementsAre(7));
  ASSERT_OK_AND_ASSIGN(const auto empty, opened.Tensor("empty"));
  EXPECT_EQ(empty.shape, (Shape{0, 4}));
  EXPECT_EQ(empty.dtype, DType::kF16);
  EXPECT_EQ(empty.storage.num_bytes, 0);
  EXPECT_TRUE(empty.IsDense());
  EXPECT_THAT(opened.Values<uint16_t>("empty"), ElementsAre());
}

TEST(TorchFile, DTypes) {
  const Opened opened("values.pt");
  EXPECT_EQ(opened.Tensor("bool")->dtype, DType::kBool);
  EXPECT_EQ(opened.Tensor("f8")->dtype, DType::kF8E4M3);
  EXPECT_THAT(opened.Values<uint8_t>("f8"), ElementsAre(0x38, 0xC0));
  EXPECT_EQ(opened.Tensor("u16")->dtype, DType::kU16);
  EXPECT_THAT(opened.Values<uint16_t>("u16"), ElementsAre(1, 65535));
  EXPECT_EQ(opened.Tensor("complex")->dtype, DType::kC64);
  EXPECT_THAT(opened.Values<float>("complex"), ElementsAre(1, 2));
  EXPECT_THAT(
      opened.Tensor("complex128"),
      StatusIs(StatusCode::kUnimplemented, HasSubstr("ComplexDoubleStorage")));
  EXPECT_THAT(opened.Tensor("conj"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("resolve_conj()")));
  EXPECT_EQ(AsTorchDType(opened["dtype"]).value(), DType::kF32);
  EXPECT_THAT(AsTorchDType(opened["base"]),
              StatusIs(StatusCode::kDataLoss, HasSubstr("a dtype")));
}

TEST(TorchFile, ClassesAroundATensor) {
  const Opened opened("values.pt");
  EXPECT_TRUE(TorchFile::IsTensor(opened["parameter"]));
  EXPECT_FALSE(TorchFile::IsTensor(opened["args"]));
  EXPECT_THAT(opened.Values<float>("parameter"), ElementsAre(5, 6));
  EXPECT_THAT(opened.Tensor("args"),
              StatusIs(StatusCode::kDataLoss,
                       HasSubstr("args is an object of argparse.Namespace")));
}

TEST(TorchFile, ValuesBesideTensors) {
  const Opened opened("values.pt");
  EXPECT_EQ(opened["large"].AsInt().value(), int64_t{1} << 40);
  EXPECT_EQ(opened["negative"].AsInt().value(), -5);
  EXPECT_EQ(opened["huge"].kind(), PickleKind::kBigInt);
  EXPECT_EQ(opened["bytes"].AsBytes().value(), std::string("\0\xff", 2));
  EXPECT_EQ(AsBytesIo(opened["stream"]).value(), "abc");
  EXPECT_THAT(AsBytesIo(opened["bytes"]),
              StatusIs(StatusCode::kDataLoss, HasSubstr("BytesIO")));
  EXPECT_THAT(opened["size"].AsInts().value(), ElementsAre(2, 3));
  EXPECT_THAT(opened["set"].AsInts().value(), ElementsAre(1));
  EXPECT_EQ(opened["ordered"].Get("a")->AsInt().value(), 1);
  const PickleValue args = opened["args"];
  EXPECT_EQ(args.Attribute("lr")->AsDouble().value(), 0.5);
  EXPECT_EQ(args.Attribute("name")->AsString().value(), "tiny");
  EXPECT_EQ(AsTorchDType(*args.Attribute("params_dtype")).value(),
            DType::kBF16);
  ASSERT_OK_AND_ASSIGN(const auto signal,
                       args.Attribute("exit_signal")->AsEnum());
  EXPECT_EQ(signal.type, "Signals");
  EXPECT_EQ(signal.value->AsInt().value(), 15);
  EXPECT_EQ(args.Attribute("nested")->Attribute("depth")->AsInt().value(), 2);
  EXPECT_EQ(args.Attribute("path")->AsPath().value(), "/a/b");
}

TEST(TorchFile, NumpyArrays) {
  const Opened opened("values.pt");
  ASSERT_OK_AND_ASSIGN(const auto array, AsNumpyArray(opened["array"]));
  EXPECT_EQ(array.shape, (Shape{2, 3}));
  EXPECT_EQ(array.dtype, DType::kU32);
  EXPECT_FALSE(array.column_major);
  EXPECT_EQ(array.bytes.substr(4, 4), std::string("\2\0\0\0", 4));
  ASSERT_OK_AND_ASSIGN(const auto columns, AsNumpyArray(opened["columns"]));
  EXPECT_TRUE(columns.column_major);
  ASSERT_OK_AND_ASSIGN(const auto scalar, AsNumpyArray(opened["np_scalar"]));
  EXPECT_EQ(scalar.shape, Shape{});
  EXPECT_EQ(scalar.bytes, std::string("\0\0\0\0\0\0\xf8\x3f", 8));
  EXPECT_THAT(AsNumpyArray(opened["big_endian"]),
              StatusIs(StatusCode::kUnimplemented, HasSubstr(">i4")));
  EXPECT_THAT(AsNumpyArray(opened["size"]),
              StatusIs(StatusCode::kDataLoss, HasSubstr("ndarray")));
}

TEST(TorchFile, ByMegatron) {
  const Opened opened("megatron/common.pt");
  const PickleValue args = opened["args"];
  EXPECT_EQ(args.Attribute("num_layers")->AsInt().value(), 4);
  EXPECT_EQ(args.Attribute("hidden_size")->AsInt().value(), 32);
  EXPECT_EQ(args.Attribute("attention_backend")->AsEnum()->type, "AttnBackend");
  EXPECT_TRUE(args.Attribute("decoder_num_layers")->IsNone());
  EXPECT_EQ(opened["iteration"].AsInt().value(), 10);
  EXPECT_EQ(opened["checkpoint_version"].AsDouble().value(), 3.0);
  EXPECT_EQ(opened["opt_param_scheduler"].Get("max_lr")->AsDouble().value(),
            0.0003);
}

// DeepSpeed's partitions are tensors with attributes.
TEST(TorchFile, ByDeepSpeed) {
  const Opened opened("deepspeed-zero3.pt");
  ASSERT_OK_AND_ASSIGN(const auto optimizer,
                       opened.root().Get("optimizer_state_dict"));
  ASSERT_OK_AND_ASSIGN(const auto groups, optimizer.Get("fp32_flat_groups"));
  ASSERT_OK_AND_ASSIGN(const auto group, groups.At(1));
  EXPECT_TRUE(TorchFile::IsTensor(group));
  ASSERT_OK_AND_ASSIGN(const auto tensor, opened.torch_file().Tensor(group));
  EXPECT_EQ(tensor.shape, Shape{120});
  EXPECT_NEAR(opened.Values<float>(tensor)[0], 0.9913, 5e-5);
  ASSERT_OK_AND_ASSIGN(const auto inner, optimizer.Get("optimizer_state_dict"));
  ASSERT_OK_AND_ASSIGN(const auto param_groups, inner.Get("param_groups"));
  EXPECT_EQ(param_groups.At(0)->Get("lr")->AsDouble().value(), 0.01);
}

// What torch.save writes around `pickle`, with storage "0" of `payload`.
ZipFiles Saved(const std::string& pickle, const std::string& payload = "") {
  return {{"archive/data.pkl", pickle},
          {"archive/byteorder", "little"},
          {"archive/data/0", payload},
          {"archive/version", "3\n"}};
}

absl::StatusOr<TorchTensor> TensorOf(const ZipFiles& files) {
  const MemoryFile memory(ZipOf(files));
  auto torch_file = TorchFile::Read(memory.file());
  if (!torch_file.ok()) return torch_file.status();
  return torch_file->Tensor(torch_file->root());
}

std::string Text(const std::string& text) {
  return absl::StrCat("\x8c", std::string(1, static_cast<char>(text.size())),
                      text);
}

struct Fields {
  std::string kind = Text("storage");
  std::string type = "ctorch\nFloatStorage\n";
  std::string key = Text("0");
  std::string count = "K\6";
  std::string offset = std::string("K\0", 2);
  std::string size = "K\2K\3\x86";
  std::string strides = "K\3K\1\x86";
};

// A tensor of 2 x 3 F32, but for what is said otherwise.
std::string TensorPickle(const Fields& fields) {
  return absl::StrCat("ctorch._utils\n_rebuild_tensor_v2\n((", fields.kind,
                      fields.type, fields.key, Text("cpu"), fields.count, "tQ",
                      fields.offset, fields.size, fields.strides,
                      "\x89"
                      "ccollections\nOrderedDict\n)RtR.");
}

void ExpectRefusedTensor(const Fields& fields, const std::string& message) {
  EXPECT_THAT(TensorOf(Saved(TensorPickle(fields), std::string(24, 'x'))),
              StatusIs(StatusCode::kDataLoss, HasSubstr(message)));
}

TEST(TorchFile, TheSmallestThatIsRead) {
  ASSERT_OK_AND_ASSIGN(const auto tensor,
                       TensorOf(Saved(TensorPickle({}), std::string(24, 'x'))));
  EXPECT_EQ(tensor.shape, (Shape{2, 3}));
}

TEST(TorchFile, RefusesViewsThatTheStorageDoesNotHold) {
  ExpectRefusedTensor({.offset = "K\1"}, "\"0\" of 6 elements does not hold");
  ExpectRefusedTensor({.offset = "J\xff\xff\xff\xff"}, "does not hold");
  ExpectRefusedTensor({.size = "K\3K\3\x86"}, "does not hold");
  ExpectRefusedTensor({.strides = "K\4K\1\x86"}, "does not hold");
  ExpectRefusedTensor({.strides = "K\1\x85"}, "does not hold");
  ExpectRefusedTensor({.strides = "J\xff\xff\xff\xffK\1\x86"}, "below 0, -1");
  const std::string large = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f";
  ExpectRefusedTensor({.offset = large}, "does not hold");
  ExpectRefusedTensor({.size = absl::StrCat(large, large, "\x86")},
                      "does not hold");
  ExpectRefusedTensor({.strides = absl::StrCat(large, large, "\x86")},
                      "does not hold");
  // No element, but a shape whose product is none.
  ExpectRefusedTensor(
      {.size = absl::StrCat("(K", std::string(1, '\0'), large, large, "t"),
       .strides = "(K\1K\1K\1t"},
      "does not hold");
}

TEST(TorchFile, RefusesStoragesThatAreWrong) {
  ExpectRefusedTensor({.key = Text("1")}, "which the file does not have");
  ExpectRefusedTensor({.count = "K\5"}, "has 24 bytes in the file");
  ExpectRefusedTensor({.count = "J\xff\xff\xff\xff"}, "has 24 bytes");
  ExpectRefusedTensor({.kind = Text("module")}, "no 5-tuple");
  ExpectRefusedTensor({.kind = ""}, "no 5-tuple");
  ExpectRefusedTensor({.type = "N"}, "no 5-tuple");
}

TEST(TorchFile, RefusesTensorsWithinThemselves) {
  EXPECT_THAT(TensorOf(Saved("ctorch._utils\n_rebuild_parameter\n]q\1\x85R.")),
              StatusIs(StatusCode::kDataLoss, HasSubstr("expected a tensor")));
  std::string many = "N";
  for (int i = 0; i < 20; ++i) {
    many = absl::StrCat("ctorch._utils\n_rebuild_parameter\n", many, "\x85R");
  }
  EXPECT_THAT(TensorOf(Saved(many + ".")),
              StatusIs(StatusCode::kDataLoss, HasSubstr("too many")));
}

TEST(TorchFile, RefusesOtherFiles) {
  const ZipFiles good = Saved("N.");
  const auto read = [](const std::string& bytes) {
    const MemoryFile memory(bytes);
    return TorchFile::Read(memory.file()).status();
  };
  EXPECT_OK(read(ZipOf(good)));
  ZipFiles files = good;
  files[1].second = "big";
  EXPECT_THAT(read(ZipOf(files)),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("order \"big\"")));
  files = good;
  files[3].second = "11\n";
  EXPECT_THAT(read(ZipOf(files)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("version \"11")));
  files = good;
  files[3].first = "archive/.data/version";
  EXPECT_OK(read(ZipOf(files)));
  files.pop_back();
  EXPECT_THAT(read(ZipOf(files)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("\"version\"")));
  files = good;
  files.erase(files.begin());
  EXPECT_THAT(read(ZipOf(files)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("data.pkl")));
  EXPECT_THAT(read(ZipOf(Saved("cos\nsystem\n."))),
              StatusIs(StatusCode::kPermissionDenied,
                       HasSubstr("/memory/file: pickle, at byte 0: it names "
                                 "os.system")));
  EXPECT_THAT(read(""),
              StatusIs(StatusCode::kDataLoss, HasSubstr("no end record")));
  EXPECT_THAT(read(std::string("\x20\0\0\0\0\0\0\0{}", 10)),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("safetensors")));
}

TEST(TorchFile, RefusesTheFormOfOldVersions) {
  ASSERT_OK_AND_ASSIGN(const auto file,
                       ckpt::File::OpenForRead(DataPath("legacy.pt")));
  EXPECT_THAT(TorchFile::Read(file),
              StatusIs(StatusCode::kUnimplemented,
                       HasSubstr("load it with torch.load and save it anew")));
}

TEST(TorchFile, ReadsOnlySmallAndWholeTensors) {
  std::string bytes =
      ZipOf(Saved(TensorPickle({}), std::string(23, 'x') + "y"));
  bytes[bytes.find("xxxy")] = 'z';
  const MemoryFile memory(bytes);
  ASSERT_OK_AND_ASSIGN(const auto torch_file, TorchFile::Read(memory.file()));
  ASSERT_OK_AND_ASSIGN(const auto tensor, torch_file.Tensor(torch_file.root()));
  EXPECT_THAT(ReadTensor(memory.file(), tensor, 23),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("[2,3]")));
  EXPECT_THAT(ReadTensor(memory.file(), tensor, 24),
              StatusIs(StatusCode::kDataLoss, HasSubstr("CRC-32")));
}

}  // namespace
}  // namespace shardshift::reshard
