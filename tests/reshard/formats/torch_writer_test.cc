// What is written is read again, and is what PyTorch's own reader was seen to
// take: SHARDSHIFT_TORCH_FILES is a directory to write files to, for
// torch.load() to look at.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/torch_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/formats/pickle.h"
#include "reshard/formats/pickle_value.h"
#include "reshard/formats/torch_file.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/formats/memory_file.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ckpt::DType;
using ckpt::Shape;
using ::testing::ElementsAre;

Pickle Written(const PyValue& value) {
  auto pickle = Pickle::Parse(WritePickle(value));
  EXPECT_OK(pickle);
  return *std::move(pickle);
}

TEST(PickleWriter, Ints) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const int64_t value :
       {int64_t{0}, int64_t{255}, int64_t{256}, int64_t{65535}, int64_t{65536},
        int64_t{-1}, int64_t{1} << 31, (int64_t{1} << 31) - 1,
        -(int64_t{1} << 31), -(int64_t{1} << 31) - 1, kMin, kMax}) {
    const Pickle pickle = Written(PyValue::Int(value));
    EXPECT_EQ(PickleValue(pickle).AsInt().value(), value);
  }
}

TEST(PickleWriter, Scalars) {
  EXPECT_TRUE(PickleValue(Written(PyValue())).IsNone());
  const Pickle yes = Written(PyValue::Bool(true));
  EXPECT_TRUE(PickleValue(yes).AsBool().value());
  const Pickle no = Written(PyValue::Bool(false));
  EXPECT_FALSE(PickleValue(no).AsBool().value());
  const Pickle number = Written(PyValue::Float(-0.1));
  EXPECT_EQ(PickleValue(number).AsDouble().value(), -0.1);
  const Pickle text = Written(PyValue::Str("\xc3\xa9"));
  EXPECT_EQ(PickleValue(text).AsString().value(), "\xc3\xa9");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const Pickle bytes = Written(PyValue::Bytes(all));
  EXPECT_EQ(PickleValue(bytes).AsBytes().value(), all);
}

TEST(PickleWriter, Containers) {
  for (int n = 0; n < 6; ++n) {
    const std::vector<int64_t> ints(n, 5);
    const Pickle tuple = Written(PyValue::IntTuple(ints));
    EXPECT_EQ(tuple.kind(tuple.root()), PickleKind::kTuple);
    EXPECT_EQ(PickleValue(tuple).AsInts().value(), ints);
    const Pickle list = Written(PyValue::List(PyValue::Items(n)));
    EXPECT_EQ(PickleValue(list).ListSize().value(), n);
  }
  const Pickle dict = Written(
      PyValue::Dict(PyValue::Attributes{{"a", PyValue::Int(1)}, {"b", {}}}));
  EXPECT_EQ(PickleValue(dict).Get("a")->AsInt().value(), 1);
  const Pickle ordered =
      Written(PyValue::OrderedDict({{PyValue::Int(3), PyValue::Str("three")}}));
  ASSERT_OK_AND_ASSIGN(const auto entries, PickleValue(ordered).AsEntries());
  EXPECT_EQ(entries[0].first.AsInt().value(), 3);
  const Pickle space = Written(PyValue::Namespace({{"lr", PyValue::Float(1)}}));
  EXPECT_TRUE(PickleValue(space).IsObjectOf("argparse", "Namespace"));
  EXPECT_EQ(PickleValue(space).Attribute("lr")->AsDouble().value(), 1);
  const Pickle call = Written(PyValue::Call(
      "torch", "Size", {PyValue::IntTuple(std::vector<int64_t>{4, 5})}));
  EXPECT_THAT(PickleValue(call).AsInts().value(), ElementsAre(4, 5));
}

void Publish(const std::string& name, const std::string& bytes) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread runs.
  if (const char* out = std::getenv("SHARDSHIFT_TORCH_FILES")) {
    ckpt::WriteFile(ckpt::JoinPath(out, name), bytes);
  }
}

TEST(TorchWriter, EveryDType) {
  TorchFileBuilder builder;
  std::vector<std::string> storages;
  PyValue::Attributes tensors;
  for (uint8_t number = 0; number < ckpt::kNumDTypes; ++number) {
    const DType dtype = *ckpt::DTypeFromNumber(number);
    const size_t storage = builder.AddStorage(dtype, 6);
    storages.emplace_back(6 * ckpt::ItemSize(dtype), '\1');
    tensors.emplace_back(std::string(ckpt::Name(dtype)),
                         builder.Tensor(storage, {2, 3}));
  }
  const TorchFileLayout layout = builder.Layout(PyValue::Dict(tensors));
  const std::string bytes = layout.Bytes(storages);
  EXPECT_EQ(bytes.size(), layout.total_bytes());
  Publish("dtypes.pt", bytes);
  const MemoryFile memory(bytes);
  ASSERT_OK_AND_ASSIGN(const auto torch_file, TorchFile::Read(memory.file()));
  for (uint8_t number = 0; number < ckpt::kNumDTypes; ++number) {
    const DType dtype = *ckpt::DTypeFromNumber(number);
    ASSERT_OK_AND_ASSIGN(const auto value,
                         torch_file.root().Get(ckpt::Name(dtype)));
    ASSERT_OK_AND_ASSIGN(const auto tensor, torch_file.Tensor(value));
    EXPECT_EQ(tensor.dtype, dtype);
    EXPECT_EQ(tensor.shape, (Shape{2, 3}));
    EXPECT_TRUE(tensor.IsDense());
    EXPECT_EQ(tensor.storage, layout.Storage(number));
    EXPECT_EQ(tensor.offset_bytes % 64, 0);
    EXPECT_OK(ReadTensor(memory.file(), tensor, 1000));
  }
}

TEST(TorchWriter, ViewsScalarsAndEmptyTensors) {
  TorchFileBuilder builder("model_optim_rng");
  const size_t six = builder.AddStorage(DType::kU8, 6);
  const size_t none = builder.AddStorage(DType::kF32, 0);
  const PyValue root = PyValue::List(
      {builder.Tensor(six, {2, 3}), builder.Tensor(six, {3, 2}, {1, 3}, 0),
       builder.Tensor(six, {}, {}, 5), builder.Tensor(none, {0, 3}),
       PyValue::Namespace({{"size", PyValue::IntTuple(Shape{1, 2})},
                           {"bytes", PyValue::Bytes("\xff")},
                           {"nothing", PyValue()}}),
       PyValue::OrderedDict({{PyValue::Str("a"), PyValue::Float(0.5)}})});
  const TorchFileLayout layout = builder.Layout(root);
  const std::string bytes = layout.Bytes(
      std::vector<std::string>{std::string("\0\1\2\3\4\5", 6), std::string()});
  Publish("views.pt", bytes);
  const MemoryFile memory(bytes);
  ASSERT_OK_AND_ASSIGN(const auto torch_file, TorchFile::Read(memory.file()));
  ASSERT_OK_AND_ASSIGN(const auto items, torch_file.root().AsList());
  const auto values = [&](size_t item) {
    const auto tensor = torch_file.Tensor(items[item]);
    EXPECT_OK(tensor);
    std::vector<int> numbers;
    const auto bytes_read = ReadTensor(memory.file(), *tensor, 100);
    EXPECT_OK(bytes_read);
    for (const std::byte b : bytes_read.value_or(std::vector<std::byte>())) {
      numbers.push_back(static_cast<int>(b));
    }
    return numbers;
  };
  EXPECT_THAT(values(0), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(values(1), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(values(2), ElementsAre(5));
  EXPECT_THAT(values(3), ElementsAre());
  EXPECT_EQ(torch_file.Tensor(items[3])->shape, (Shape{0, 3}));
}

// The same state has the same bytes, whatever the pieces are.
TEST(TorchWriter, PiecesAndStoragesMakeUpTheFile) {
  TorchFileBuilder builder;
  const size_t a = builder.AddStorage(DType::kF32, 5);
  const size_t b = builder.AddStorage(DType::kBF16, 100);
  const TorchFileLayout layout = builder.Layout(
      PyValue::Tuple({builder.Tensor(a, {5}), builder.Tensor(b, {100})}));
  const std::vector<std::string> storages = {std::string(20, 'a'),
                                             std::string(200, 'b')};
  std::string file(layout.total_bytes(), '?');
  const std::vector<uint32_t> crcs = {CrcOf(storages[0]), CrcOf(storages[1])};
  int64_t filled = 0;
  const auto fill = [&](int64_t offset, const std::string& bytes) {
    file.replace(offset, bytes.size(), bytes);
    filled += std::ssize(bytes);
  };
  for (const auto& piece : layout.Rest(crcs)) {
    fill(piece.offset_bytes, piece.bytes);
  }
  for (size_t i = 0; i < 2; ++i)
    fill(layout.Storage(i).offset_bytes, storages[i]);
  EXPECT_EQ(filled, layout.total_bytes());
  EXPECT_EQ(file, layout.Bytes(storages));
}

}  // namespace
}  // namespace shardshift::reshard
