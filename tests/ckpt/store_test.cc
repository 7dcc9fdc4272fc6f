// What is written is read back, and the same content gives the same bytes.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/convert.h"
#include "ckpt/core/page_memory.h"
#include "ckpt/index_writer.h"
#include "ckpt/io/file.h"
#include "ckpt/io/system_calls.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "ckpt/verify.h"
#include "ckpt/writer.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A random box within `whole`.
Box RandomBox(const Box& whole, std::mt19937& random) {
  Box box = whole;
  for (size_t d = 0; d < box.start.size(); ++d) {
    const auto extent = static_cast<uint64_t>(whole.extent[d]);
    const auto begin = static_cast<int64_t>(random() % (extent + 1));
    const auto room = static_cast<uint64_t>(whole.extent[d] - begin);
    box.start[d] = begin;
    box.extent[d] = static_cast<int64_t>(random() % (room + 1));
  }
  return box;
}

std::vector<std::byte> Read(const Reader& reader, int64_t tensor,
                            const Box& box) {
  const Tensor& info = reader.table().tensors[tensor];
  std::vector<std::byte> bytes(NumElements(box) * ItemSize(info.dtype));
  EXPECT_OK(reader.ReadTensor(tensor, box, bytes.data()));
  return bytes;
}

TEST(Store, GivesBackAnyBoxOfAnyTensorHoweverCut) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    std::mt19937 random(seed);
    const TempDir dir;
    const std::vector<SampleTensor> tensors = RandomTensors(3, random);
    ASSERT_OK(WriteSample(dir.path(), 5, tensors));
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Reader> reader,
                         Reader::Open(JoinPath(dir.path(), StepName(5))));
    EXPECT_EQ(reader->table().tensors.size(), tensors.size());
    for (const SampleTensor& tensor : tensors) {
      const Tensor& info = tensor.info;
      ASSERT_OK_AND_ASSIGN(const int64_t t,
                           reader->FindTensor(info.name, info.role));
      EXPECT_EQ(reader->table().tensors[t], info);
      const Box whole = WholeBox(info.shape);
      EXPECT_EQ(Read(*reader, t, whole), Payload(info, whole));
      const Box box = RandomBox(whole, random);
      EXPECT_EQ(Read(*reader, t, box), Payload(info, box));
    }
  }
}

TEST(Store, ReadsAcrossTheBlocksOfLargeFragments) {
  const TempDir dir;
  const Tensor info = {"big", "master", DType::kF32, {3000, 1100}};
  const std::vector<SampleTensor> tensors = {
      {info, {{0, {{0, 0}, {3000, 700}}}, {1, {{0, 700}, {3000, 400}}}}}};
  ASSERT_OK(WriteSample(dir.path(), 1, tensors));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Reader> reader,
                       Reader::Open(JoinPath(dir.path(), StepName(1))));
  EXPECT_EQ(reader->Fragments(0)[0].blocks.size(), 3u);
  for (const Box& box : {WholeBox(info.shape), Box{{1400, 650}, {300, 100}},
                         Box{{2999, 1099}, {1, 1}}}) {
    EXPECT_EQ(Read(*reader, 0, box), Payload(info, box));
  }
}

// Counts the bytes that go from a file straight to `memory`.
class ReadsInto : public SystemCalls {
 public:
  explicit ReadsInto(std::span<const std::byte> memory) : memory_(memory) {}
  ssize_t PRead(int fd, void* data, size_t num_bytes,
                int64_t offset_bytes) override {
    const ssize_t n = SystemCalls::PRead(fd, data, num_bytes, offset_bytes);
    const auto* begin = static_cast<const std::byte*>(data);
    if (memory_.data() <= begin && begin < memory_.data() + memory_.size()) {
      num_bytes_ += n;
    }
    return n;
  }
  int64_t num_bytes() const { return num_bytes_; }

 private:
  const std::span<const std::byte> memory_;
  std::atomic<int64_t> num_bytes_ = 0;
};

TEST(Store, ReadsBlocksStraightIntoMemoryThatTakesThem) {
  const TempDir dir;
  constexpr int64_t kRows = 5000;  // of 4 KiB: five blocks, the last short
  const Tensor info = {"big", "master", DType::kF32, {kRows, 1024}};
  const std::vector<SampleTensor> tensors = {
      {info, {{0, {{0, 0}, {2048, 1024}}}, {1, {{2048, 0}, {2952, 1024}}}}}};
  ASSERT_OK(WriteSample(dir.path(), 1, tensors));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Reader> reader,
                       Reader::Open(JoinPath(dir.path(), StepName(1))));
  const int64_t all_bytes = NumElements(WholeBox(info.shape)) * 4;
  PageVector<std::byte> memory(all_bytes + 4096);

  struct Case {
    Box box;
    int64_t at;  // where in `memory`
    int64_t direct_bytes;
  };
  for (const Case& c : {
           Case{WholeBox(info.shape), 0, all_bytes},
           // Blocks cut at either end go through other memory.
           Case{{{1, 0}, {kRows - 2, 1024}}, 4096, 3 * kBlockBytes},
           Case{{{0, 0}, {kRows, 1023}}, 0, 0},
       }) {
    ReadsInto calls(memory);
    const ScopedSystemCalls scope(calls);
    ASSERT_OK(reader->ReadTensor(0, c.box, memory.data() + c.at));
    const std::vector<std::byte> expected = Payload(info, c.box);
    EXPECT_TRUE(
        std::equal(expected.begin(), expected.end(), memory.begin() + c.at));
    EXPECT_EQ(calls.num_bytes(), c.direct_bytes) << ToString(c.box.extent);
  }
}

TEST(Store, FindsDamageInWhatItReadStraightIntoMemory) {
  const TempDir dir;
  const Tensor info = {"big", "master", DType::kF32, {1024, 1024}};
  ASSERT_OK(WriteSample(dir.path(), 1, {{info, {{0, WholeBox(info.shape)}}}}));
  const std::string step_dir = JoinPath(dir.path(), StepName(1));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Reader> reader,
                       Reader::Open(step_dir));
  const std::string path = JoinPath(step_dir, PartFileName(0));
  std::string bytes = ReadFile(path);
  bytes[reader->Fragments(0)[0].blocks[0].offset_bytes + 12345] ^= 4;
  WriteFile(path, bytes);
  PageVector<std::byte> memory(kBlockBytes);
  EXPECT_THAT(reader->ReadTensor(0, WholeBox(info.shape), memory.data()),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(path), HasSubstr("\"big\""),
                             HasSubstr("checksum differs"))));
}

TEST(Store, ConvertsWhatItReadsWhenAsked) {
  const TempDir dir;
  const Tensor info = {"w", "master", DType::kF32, {30, 40}};
  const std::vector<SampleTensor> tensors = {
      {info, {{0, {{0, 0}, {30, 25}}}, {1, {{0, 25}, {30, 15}}}}}};
  ASSERT_OK(WriteSample(dir.path(), 1, tensors));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Reader> reader,
                       Reader::Open(JoinPath(dir.path(), StepName(1))));
  const Box box = {{3, 20}, {20, 15}};
  const std::vector<std::byte> values = Payload(info, box);
  for (const DType as : {DType::kBF16, DType::kF64, DType::kF8E4M3}) {
    std::vector<std::byte> expected(NumElements(box) * ItemSize(as));
    ConvertValues(DType::kF32, values.data(), as, expected.data(),
                  NumElements(box));
    std::vector<std::byte> read(expected.size());
    ASSERT_OK(reader->ReadTensor(0, box, read.data(), as));
    EXPECT_EQ(read, expected) << Name(as);
  }
  std::byte untouched{7};
  EXPECT_THAT(reader->ReadTensor(0, box, &untouched, DType::kI64),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("\"w\""), HasSubstr("F32 to I64"))));
  EXPECT_EQ(untouched, std::byte{7});
}

TEST(Store, KeepsStateRecordAndStep) {
  const TempDir dir;
  ASSERT_OK(WriteSample(dir.path(), 123456789, SmallTensors()));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Reader> reader,
                       Reader::Open(JoinPath(dir.path(), "step-123456789")));
  EXPECT_EQ(reader->step(), 123456789);
  EXPECT_EQ(reader->state(), R"({"step":1})");
  EXPECT_EQ(reader->record(), R"({"layout":{"tp":2}})");
  EXPECT_EQ(ReadFile(JoinPath(dir.path(), "latest")), "step-123456789\n");
}

TEST(Store, RefusesAPartOfAnotherSizeThanTheIndexTells) {
  const TempDir dir;
  ASSERT_OK(WriteSample(dir.path(), 1, SmallTensors()));
  const std::string step_dir = JoinPath(dir.path(), StepName(1));
  ASSERT_OK_AND_ASSIGN(Table table, ReadIndexTable(step_dir));
  table.parts[1].file_bytes = int64_t{1} << 62;
  ASSERT_OK(RemoveTree(JoinPath(step_dir, kIndexFileName)));
  ASSERT_OK(WriteIndex(step_dir, kIndexFileName, table, 0));
  EXPECT_THAT(
      Reader::Open(step_dir),
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr(PartFileName(1)),
                     HasSubstr("the index expects 4611686018427387904"))));
}

TEST(Store, NamesWhatItHasNot) {
  const TempDir dir;
  ASSERT_OK(WriteSample(dir.path(), 1, SmallTensors()));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Reader> reader,
                       Reader::Open(JoinPath(dir.path(), StepName(1))));
  EXPECT_THAT(reader->FindTensor("w", "exp_avg"),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("no tensor \"w\" (exp_avg)")));
  EXPECT_THAT(reader->ReadTensor(0, {{3}, {3}}, nullptr),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("[5]")));
}

// Leaves odd bytes behind in freed memory.
void DirtyHeap(unsigned seed) {
  std::vector<std::unique_ptr<char[]>> blocks;
  std::mt19937 random(seed);
  for (int i = 0; i < 3000; ++i) {
    const size_t size = 1 + random() % 20'000;
    blocks.push_back(std::make_unique<char[]>(size));
    std::fill_n(blocks.back().get(), size, static_cast<char>(random()));
  }
}

// Each file's name with the digest of its bytes.
std::vector<std::pair<std::string, std::string>> FilesOf(
    const std::string& dir) {
  std::vector<std::pair<std::string, std::string>> files;
  const std::vector<std::string> names = ListDirectory(dir).value();
  for (const std::string& name : names) {
    Digest128Stream stream;
    stream.Update(AsBytes(ReadFile(JoinPath(dir, name))));
    files.emplace_back(name, ToString(stream.Digest()));
  }
  return files;
}

TEST(Store, GivesTheSameBytesAtAnotherTimeInAnotherThread) {
  std::mt19937 random(4);
  const std::vector<SampleTensor> tensors = RandomTensors(2, random);
  const TempDir first;
  const TempDir second;
  DirtyHeap(1);
  ASSERT_OK(WriteSample(first.path(), 1, tensors));
  ::usleep(1'100'000);  // HDF5's time stamps count seconds
  std::thread([&] {
    DirtyHeap(2);
    ASSERT_OK(WriteSample(second.path(), 1, tensors));
  }).join();
  const auto files = FilesOf(JoinPath(first.path(), StepName(1)));
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files, FilesOf(JoinPath(second.path(), StepName(1))));
}

TEST(Store, DoesNotDependOnTheOrderOfReceipts) {
  const TempDir first;
  const TempDir second;
  for (const TempDir* dir : {&first, &second}) {
    ASSERT_OK_AND_ASSIGN(const std::string partial,
                         BeginCheckpoint(dir->path(), 1));
    ASSERT_OK_AND_ASSIGN(std::vector<PartReceipt> receipts,
                         WriteSampleParts(partial, {1, "{}"}, SmallTensors()));
    if (dir == &second) std::reverse(receipts.begin(), receipts.end());
    ASSERT_OK(CommitCheckpoint(dir->path(), {1, "{}"}, receipts, "{}", false));
  }
  EXPECT_EQ(FilesOf(JoinPath(first.path(), StepName(1))),
            FilesOf(JoinPath(second.path(), StepName(1))));
}

TEST(Store, AddsLittleToTheBytesOfThePayload) {
  const TempDir dir;
  const Tensor info = {"w", "master", DType::kF32, {1000, 1001}};
  ASSERT_OK(WriteSample(dir.path(), 1, {{info, {{0, WholeBox(info.shape)}}}}));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Reader> reader,
                       Reader::Open(JoinPath(dir.path(), StepName(1))));
  EXPECT_LT(reader->total_bytes(), 4 * 1000 * 1001 + 50'000);
}

TEST(PartWriter, WantsEveryBlockOnceAndWhole) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<PartWriter> writer,
      PartWriter::Create(dir.path(), 0, {1, "{}"},
                         {{"w", "master", DType::kF32, {4}, {{1}, {2}}}}));
  EXPECT_THAT(writer->WriteBlock(0, 0, AsBytes("1234567")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("7 bytes, expected 8")));
  EXPECT_THAT(writer->WriteBlock(0, 1, AsBytes("12345678")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has 1 blocks, not one of number 1")));
  EXPECT_THAT(writer->Close(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("have not come")));
  EXPECT_OK(writer->WriteBlock(0, 0, AsBytes("12345678")));
  EXPECT_THAT(
      writer->WriteBlock(0, 0, AsBytes("12345678")),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("before")));
  EXPECT_OK(writer->Close());
}

TEST(PartWriter, RefusesBadSpecsBeforeAFileExists) {
  const TempDir dir;
  const FragmentSpec good = {"w", "m", DType::kF32, {4}, {{0}, {4}}};
  FragmentSpec outside = good;
  outside.box.start[0] = 1;
  FragmentSpec other_shape = good;
  other_shape.shape = {5};
  for (const std::vector<FragmentSpec>& specs : {std::vector<FragmentSpec>{},
                                                 {good, good},
                                                 {outside},
                                                 {good, other_shape}}) {
    EXPECT_THAT(PartWriter::Create(dir.path(), 0, {1, "{}"}, specs),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("")));
  }
  EXPECT_TRUE(ListDirectory(dir.path()).value().empty());
}

}  // namespace
}  // namespace shardshift::ckpt
