// Kinds of bugs that checkpoints of other projects had, by the numbers of the
// project's collection: memory, time and sizes that blow up.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/coding.h"
#include "ckpt/hdf5/part_file.h"
#include "ckpt/io/aligned_buffer.h"
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

using ::testing::Each;
using ::testing::Field;
using ::testing::Le;
using ::testing::SizeIs;

// The memory of the process: what it had most of since the last Reset.
class ResidentPeak {
 public:
  static bool Reset() {
    std::ofstream file("/proc/self/clear_refs");
    file << "5" << std::flush;
    return file.good();
  }
  static int64_t Bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("VmHWM:", 0) == 0)
        return 1024 * std::stoll(line.substr(6));
    }
    return -1;
  }
};

// Reads of payload, by file.
class ReadLog : public SystemCalls {
 public:
  struct Read {
    int64_t offset_bytes;
    int64_t num_bytes;
  };

  std::map<std::string, std::vector<Read>> Reads() const { return reads_; }
  void Clear() { reads_.clear(); }

  int Open(const std::string& path, int flags, mode_t mode) override {
    const int fd = SystemCalls::Open(path, flags, mode);
    const std::lock_guard lock(mutex_);
    names_[fd] = path.substr(path.rfind('/') + 1);
    return fd;
  }
  ssize_t PRead(int fd, void* data, size_t num_bytes,
                int64_t offset_bytes) override {
    {
      const std::lock_guard lock(mutex_);
      reads_[names_[fd]].push_back(
          {offset_bytes, static_cast<int64_t>(num_bytes)});
    }
    return SystemCalls::PRead(fd, data, num_bytes, offset_bytes);
  }

 private:
  std::mutex mutex_;
  std::map<int, std::string> names_;
  std::map<std::string, std::vector<Read>> reads_;
};

// A disk on which zeros take no room, as with sparse files.
class SparseDisk : public SystemCalls {
 public:
  ssize_t PWrite(int fd, const void* data, size_t num_bytes,
                 int64_t offset_bytes) override {
    const auto* bytes = static_cast<const char*>(data);
    const bool is_zero =
        bytes[0] == 0 && std::equal(bytes + 1, bytes + num_bytes, bytes);
    if (is_zero) return static_cast<ssize_t>(num_bytes);
    return SystemCalls::PWrite(fd, data, num_bytes, offset_bytes);
  }
  int FAllocate(int fd, int64_t num_bytes) override {
    return ::ftruncate(fd, num_bytes);
  }
};

// Writes one part of one-dimensional U8 tensors by their blocks: zeros, but
// for the blocks given.
using Blocks = std::map<std::pair<int64_t, int64_t>, std::string>;
absl::Status WriteBlocks(PartWriter& writer,
                         const std::vector<FragmentSpec>& specs,
                         const Blocks& blocks) {
  auto zeros = AlignedBuffer::Allocate(kBlockBytes);
  if (!zeros.ok()) return zeros.status();
  std::ranges::fill(zeros->bytes(), std::byte{0});
  for (size_t f = 0; f < specs.size(); ++f) {
    const int64_t num_bytes = NumElements(specs[f].box);
    for (int64_t b = 0; b < NumBlocks(num_bytes); ++b) {
      const auto size = static_cast<size_t>(
          std::min(kBlockBytes, num_bytes - b * kBlockBytes));
      const auto block = blocks.find({f, b});
      std::string text = block == blocks.end() ? "" : block->second;
      if (!text.empty()) text.resize(size, '\0');
      absl::Status status = writer.WriteBlock(
          static_cast<int64_t>(f), b,
          text.empty() ? zeros->bytes().first(size) : AsBytes(text));
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

FragmentSpec Bytes(const std::string& name, int64_t num_bytes) {
  return {name, "m", DType::kU8, {num_bytes}, WholeBox({num_bytes})};
}

std::string ReadText(const Reader& reader, const std::string& tensor,
                     int64_t begin, int64_t size) {
  std::string text(static_cast<size_t>(size), '?');
  EXPECT_OK(reader.ReadTensor(
      reader.FindTensor(tensor, "m").value(), {{begin}, {size}},
      std::as_writable_bytes(std::span(text.data(), text.size())).data()));
  return text;
}

// A run directory with the U8 tensor "big" of 16 blocks, cut in two parts.
class BugKindsOfMemory : public ::testing::Test {
 protected:
  static constexpr int64_t kHalf = 8 * kBlockBytes;

  void WriteBig() {
    ASSERT_OK_AND_ASSIGN(const std::string partial, BeginCheckpoint(run_, 1));
    std::vector<PartReceipt> receipts;
    for (int64_t part = 0; part < 2; ++part) {
      const std::vector<FragmentSpec> specs = {
          {"big", "m", DType::kU8, {2 * kHalf}, {{part * kHalf}, {kHalf}}}};
      ASSERT_OK_AND_ASSIGN(const auto writer,
                           PartWriter::Create(partial, part, id_, specs));
      ASSERT_OK(WriteBlocks(*writer, specs, {}));
      ASSERT_OK_AND_ASSIGN(receipts.emplace_back(), writer->Close());
    }
    ASSERT_OK(CommitCheckpoint(run_, id_, receipts, "{}", false));
  }

  const TempDir dir_{InMemory()};
  const std::string run_ = JoinPath(dir_.path(), "run");
  const std::string step_dir_ = JoinPath(run_, StepName(1));
  const CheckpointId id_ = {1, "{}"};
};

TEST_F(BugKindsOfMemory, B107AViewOfALargeBufferIsStoredAlone) {
  const std::vector<std::byte> buffer(100 << 20, std::byte{7});
  ASSERT_OK(MakeDirectories(run_));
  const std::vector<FragmentSpec> specs = {Bytes("view", 10)};
  ASSERT_OK_AND_ASSIGN(const auto writer,
                       PartWriter::Create(run_, 0, id_, specs));
  ASSERT_OK(writer->WriteBlock(0, 0, std::span(buffer).subspan(5000, 10)));
  ASSERT_OK_AND_ASSIGN(const PartReceipt receipt, writer->Close());
  EXPECT_LE(receipt.part.file_bytes, 4 * 4096);
}

TEST_F(BugKindsOfMemory, B108AReaderOfAShareFetchesThatShare) {
  ASSERT_NO_FATAL_FAILURE(WriteBig());
  ASSERT_OK_AND_ASSIGN(const auto reader, Reader::Open(step_dir_));
  ReadLog log;
  const ScopedSystemCalls scope(log);
  std::vector<std::byte> share(2 * kBlockBytes);
  ASSERT_OK(reader->ReadTensor(0, {{kBlockBytes / 2}, {2 * kBlockBytes}},
                               share.data()));
  int64_t num_bytes = 0;
  for (const auto& [file, reads] : log.Reads()) {
    for (const ReadLog::Read& read : reads) num_bytes += read.num_bytes;
  }
  EXPECT_EQ(num_bytes, 3 * kBlockBytes);
}

// What a commit gathers and an index holds grows with the fragments alone.
TEST_F(BugKindsOfMemory, B109PlansAreASmallNumberOfBytesAFragment) {
  constexpr int64_t kNumTensors = 10'000;
  Table table;
  for (int64_t part = 0; part < 64; ++part) {
    table.parts.push_back({part, int64_t{1} << 30, {}});
  }
  for (int64_t t = 0; t < kNumTensors; ++t) {
    table.tensors.push_back(
        {absl::StrCat("t", kNumTensors + t), "m", DType::kU8, {1}});
    table.fragments.push_back({.tensor = t,
                               .box = {{0}, {1}},
                               .part = t % 64,
                               .blocks = {{4096 + t, 1, 0}}});
  }
  const std::string bytes = EncodeTable(table);
  EXPECT_LT(bytes.size(), 150 * kNumTensors);
  EXPECT_OK(DecodeIndexTable(AsBytes(bytes)));
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCountsMemory = false;
#else
constexpr bool kCountsMemory = true;
#endif

TEST_F(BugKindsOfMemory, B110ASaveTakesAFewBlocksBeyondTheState) {
  const std::vector<std::byte> state(128 << 20, std::byte{3});
  ASSERT_OK(MakeDirectories(run_));
  const std::vector<FragmentSpec> specs = {Bytes("w", 128 << 20)};
  ASSERT_OK_AND_ASSIGN(const auto writer,
                       PartWriter::Create(run_, 0, id_, specs));
  if (!kCountsMemory || !ResidentPeak::Reset()) GTEST_SKIP();
  const int64_t before = ResidentPeak::Bytes();
  const std::span<const std::byte> image(state);
  ASSERT_OK(writer->WriteFragments({&image, 1}));
  ASSERT_OK(writer->Close());
  EXPECT_LT(ResidentPeak::Bytes() - before, 8 * kBlockBytes);
}

// B112 is the same of a resume: values go to their place, with no second copy.
TEST_F(BugKindsOfMemory, B111ALoadTakesAFewBlocksBeyondItsDestination) {
  ASSERT_NO_FATAL_FAILURE(WriteBig());
  std::vector<std::byte> destination(2 * kHalf, std::byte{1});
  if (!kCountsMemory || !ResidentPeak::Reset()) GTEST_SKIP();
  const int64_t before = ResidentPeak::Bytes();
  ASSERT_OK_AND_ASSIGN(const auto reader, Reader::Open(step_dir_));
  ASSERT_OK(reader->ReadTensor(0, WholeBox({2 * kHalf}), destination.data()));
  ASSERT_OK(Verify(step_dir_, /*deep=*/true, [](const Fault&) {}));
  EXPECT_LT(ResidentPeak::Bytes() - before, 8 * kBlockBytes);
  EXPECT_EQ(destination, std::vector<std::byte>(2 * kHalf));
}

TEST_F(BugKindsOfMemory, B114PayloadIsReadInLargePiecesEachByteOnce) {
  ASSERT_NO_FATAL_FAILURE(WriteBig());
  ASSERT_OK_AND_ASSIGN(const auto reader, Reader::Open(step_dir_));
  ReadLog log;
  const ScopedSystemCalls scope(log);
  std::vector<std::byte> all(2 * kHalf);
  ASSERT_OK(reader->ReadTensor(0, WholeBox({2 * kHalf}), all.data()));
  const auto reads = log.Reads();
  ASSERT_THAT(reads, SizeIs(2));
  for (const auto& [file, of_file] : reads) {
    EXPECT_THAT(of_file, Each(Field(&ReadLog::Read::num_bytes, 1 << 20)));
    std::set<int64_t> offsets;
    for (const ReadLog::Read& read : of_file) offsets.insert(read.offset_bytes);
    EXPECT_THAT(offsets, SizeIs(kHalf >> 20));
    EXPECT_THAT(of_file, SizeIs(kHalf >> 20));
  }
}

TEST_F(BugKindsOfMemory, B115AnUnchangedShareIsReadFromItsOwnPart) {
  ASSERT_NO_FATAL_FAILURE(WriteBig());
  ASSERT_OK_AND_ASSIGN(const auto reader, Reader::Open(step_dir_));
  ReadLog log;
  const ScopedSystemCalls scope(log);
  std::vector<std::byte> own(kHalf);
  ASSERT_OK(reader->ReadTensor(0, {{kHalf}, {kHalf}}, own.data()));
  ASSERT_THAT(log.Reads(), SizeIs(1));
  EXPECT_EQ(log.Reads().begin()->first, PartFileName(1));
}

TEST_F(BugKindsOfMemory, B116SizesAndOffsetsHave64Bits) {
  constexpr int64_t kLong = (int64_t{1} << 31) + 8;
  const std::vector<FragmentSpec> specs = {Bytes("a", kLong), Bytes("b", kLong),
                                           Bytes("c", 8)};
  SparseDisk disk;
  const ScopedSystemCalls scope(disk);
  ASSERT_OK_AND_ASSIGN(const std::string partial, BeginCheckpoint(run_, 1));
  ASSERT_OK_AND_ASSIGN(const auto writer,
                       PartWriter::Create(partial, 0, id_, specs));
  ASSERT_OK(WriteBlocks(*writer, specs,
                        {{{0, 512}, "tail a.."},
                         {{1, 300}, "within b"},
                         {{1, 512}, "tail b.."},
                         {{2, 0}, "all of c"}}));
  ASSERT_OK_AND_ASSIGN(const PartReceipt receipt, writer->Close());
  ASSERT_OK(CommitCheckpoint(run_, id_, {receipt}, "{}", false));
  ASSERT_OK_AND_ASSIGN(const auto reader, Reader::Open(step_dir_));
  EXPECT_GT(reader->Fragments(2)[0].blocks[0].offset_bytes, int64_t{1} << 32);
  const std::string zeros(4, '\0');
  EXPECT_EQ(ReadText(*reader, "a", kLong - 12, 12), zeros + "tail a..");
  EXPECT_EQ(ReadText(*reader, "b", 300 * kBlockBytes - 4, 12),
            zeros + "within b");
  EXPECT_EQ(ReadText(*reader, "b", kLong - 12, 12), zeros + "tail b..");
  EXPECT_EQ(ReadText(*reader, "c", 0, 8), "all of c");
  EXPECT_EQ(Verify(step_dir_, false, [](const Fault&) {})->num_faults, 0);
}

// The bytes of a part that `num_threads` write, blocks in a random order.
std::string PartBy(int num_threads) {
  const TempDir dir(InMemory());
  const std::vector<FragmentSpec> specs = {Bytes("a", 3 * kBlockBytes + 5),
                                           Bytes("b", 100)};
  const auto writer =
      PartWriter::Create(dir.path(), 0, {1, "{}"}, specs).value();
  std::vector<std::pair<int64_t, int64_t>> order = {
      {0, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 0}};
  std::mt19937 random(num_threads);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<std::thread> threads;
  threads.reserve(num_threads);
  for (int t = 0; t < num_threads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < order.size(); i += num_threads) {
        const auto [fragment, block] = order[i];
        const int64_t size = std::min(
            kBlockBytes, specs[fragment].shape[0] - block * kBlockBytes);
        const std::string bytes(static_cast<size_t>(size),
                                static_cast<char>('a' + block));
        EXPECT_OK(writer->WriteBlock(fragment, block, AsBytes(bytes)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_OK(writer->Close().status());
  return ReadFile(JoinPath(dir.path(), PartFileName(0)));
}

TEST_F(BugKindsOfMemory, B118AnyNumberOfWorkersGivesTheSameBytes) {
  const std::string sequential = PartBy(1);
  EXPECT_TRUE(PartBy(2) == sequential);
  EXPECT_TRUE(PartBy(8) == sequential);
}

TEST_F(BugKindsOfMemory, B119ATensorOf4GibIsNoSingleChunkOrWrite) {
  const Shape shape = {32768, 16384};
  Table table;
  table.tensors = {{"w", "m", DType::kF64, shape}};
  table.fragments = {{.box = WholeBox(shape)}};
  table.fragments[0].blocks.resize(NumBlocks(NumElements(shape) * 8));
  const std::vector<int64_t> order = {0};
  ASSERT_OK_AND_ASSIGN(PartLayout part,
                       PartLayout::Create("part", order, table));
  const auto table_bytes = static_cast<int64_t>(EncodeTable(table).size());
  ASSERT_OK_AND_ASSIGN(const FileLayout layout, part.Finish(table_bytes));
  EXPECT_GT(layout.image.file_bytes(), int64_t{1} << 32);
  EXPECT_LT(layout.image.num_pages(), 10);
  EXPECT_THAT(table.fragments[0].blocks,
              Each(Field(&Block::stored_bytes, Le(kBlockBytes))));
}

}  // namespace
}  // namespace shardshift::ckpt
