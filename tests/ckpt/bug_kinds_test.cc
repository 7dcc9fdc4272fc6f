// Kinds of bugs that checkpoints of other projects had, by the numbers of the
// project's collection: damaged, missing, stale and oversized files.
// Swept elsewhere: crashes (crash_test), damage (corruption_test).
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/coding.h"
#include "ckpt/format/table_builder.h"
#include "ckpt/hdf5/handle.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "ckpt/verify.h"
#include "ckpt/writer.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/faulty_disk.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// A run directory with SmallTensors() as step 1.
class BugKinds : public ::testing::Test {
 protected:
  BugKinds() { EXPECT_OK(WriteSample(run_, 1, SmallTensors())); }

  std::string StepDir(int64_t step) const {
    return JoinPath(run_, StepName(step));
  }
  std::string Path(absl::string_view file) const {
    return JoinPath(StepDir(1), file);
  }
  absl::Status Open(int64_t step = 1) const {
    return Reader::Open(StepDir(step)).status();
  }
  std::string StateOf(int64_t step) const {
    const auto reader = Reader::Open(StepDir(step));
    return reader.ok() ? (*reader)->state() : reader.status().ToString();
  }

  const TempDir dir_{InMemory()};
  const std::string run_ = JoinPath(dir_.path(), "run");
};

// The index's table of SmallTensors(): tensors b, n, w; w in two columns.
Table SmallTable(const std::string& step_dir) {
  return ReadIndexTable(step_dir).value();
}

absl::Status Decode(const Table& table) {
  return DecodeIndexTable(AsBytes(EncodeTable(table))).status();
}

TEST_F(BugKinds, B86HalfWrittenCheckpointIsNeverTheLatest) {
  ASSERT_OK_AND_ASSIGN(const std::string partial, BeginCheckpoint(run_, 2));
  ASSERT_OK(WriteSampleParts(partial, {2, "{}"}, SmallTensors()).status());
  EXPECT_EQ(ResolveCheckpoint(run_)->step, 1);
  // Even under a step's name, as tools without a rename leave it.
  ASSERT_OK(Rename(partial, StepDir(2)));
  ASSERT_OK_AND_ASSIGN(const ResolvedCheckpoint taken, ResolveCheckpoint(run_));
  EXPECT_EQ(taken.step, 1);
  EXPECT_THAT(taken.note, HasSubstr("step-00000002"));
}

TEST_F(BugKinds, B86UnfinishedSavesAreRemovedByTheNextOne) {
  ASSERT_OK_AND_ASSIGN(const std::string partial, BeginCheckpoint(run_, 2));
  ASSERT_OK(WriteSampleParts(partial, {2, "{}"}, SmallTensors()).status());
  const std::string mine = JoinPath(run_, "step-00000004.partial");
  ASSERT_OK(MakeDirectories(mine));
  WriteFile(JoinPath(mine, "notes.txt"), "mine");
  ASSERT_OK(WriteSample(run_, 3, SmallTensors()));
  EXPECT_THAT(ListDirectory(run_).value(),
              ElementsAre("latest", "step-00000001", "step-00000003",
                          "step-00000004.partial"));
}

TEST_F(BugKinds, B93MissingFilesAreAllNamedAndStrayOnesIgnored) {
  WriteFile(Path("part-00007.h5"), ReadFile(Path("part-00001.h5")));
  EXPECT_OK(Open());
  ASSERT_OK(RemoveTree(Path("part-00000.h5")));
  ASSERT_OK(RemoveTree(Path("part-00001.h5")));
  EXPECT_THAT(Open(), StatusIs(kDataLoss, HasSubstr("lacks 2 of 2 parts: "
                                                    "part-00000.h5, "
                                                    "part-00001.h5")));
}

TEST_F(BugKinds, B94AReplacementLeavesNoFileOfTheOldOne) {
  std::vector<SampleTensor> in_one_part = SmallTensors();
  for (SampleTensor& tensor : in_one_part) {
    for (Piece& piece : tensor.pieces) piece.part = 5;
  }
  ASSERT_OK(WriteSample(run_, 1, in_one_part, /*replace=*/true));
  EXPECT_THAT(ListDirectory(StepDir(1)).value(),
              ElementsAre("index.h5", "part-00005.h5"));
  EXPECT_THAT(WriteSample(run_, 1, SmallTensors()),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("exists")));
}

// What a hostile table claims, and the word that refuses it.
TEST_F(BugKinds, B95TablesAreRefusedBeforeTheirClaimsAreUsed) {
  const Table good = SmallTable(StepDir(1));
  ASSERT_OK(Decode(good));
  const auto expect_refused = [&](const auto& damage, const char* word) {
    Table table = good;
    damage(table);
    EXPECT_THAT(Decode(table), StatusIs(kDataLoss, HasSubstr(word)));
  };
  const int64_t huge = std::numeric_limits<int64_t>::max() - 1;
  expect_refused([](Table& t) { t.fragments[3] = t.fragments[2]; }, "twice");
  expect_refused([](Table& t) { t.fragments[2].box.extent[1] = 3; },
                 "nothing holds");
  expect_refused([](Table& t) { t.fragments.pop_back(); }, "nothing holds");
  expect_refused([](Table& t) { t.tensors[1].name = t.tensors[0].name; },
                 "order");
  expect_refused(
      [](Table& t) {
        t.tensors[2].shape = {1000, 1000};
      },
      "nothing holds");
  expect_refused(
      [&](Table& t) {
        t.tensors[2].shape = {huge, huge};
      },
      "tensor \"w\"");
  expect_refused([&](Table& t) { t.fragments[2].box.start[0] = huge; },
                 "outside its shape");
  expect_refused(
      [&](Table& t) { t.fragments[0].blocks[0].offset_bytes = huge; },
      "beyond 63 bits");
  expect_refused(
      [&](Table& t) { t.fragments[0].blocks[0].offset_bytes = huge / 2; },
      "outside the file");
  expect_refused(
      [](Table& t) {
        t.fragments[3].blocks[0].offset_bytes =
            t.fragments[0].blocks[0].offset_bytes;
        t.fragments[3].part = t.fragments[0].part;
      },
      "shares bytes");
  expect_refused([](Table& t) { t.tensors[0].dtype = DType{77}; }, "dtype");
  expect_refused([](Table& t) { t.fragments[0].tensor = 9; }, "no fragment");
  expect_refused([](Table& t) { t.fragments[0].part = 9; }, "not listed");
  // A length of 2^63 - 1 in front of the state, behind a step of one byte.
  std::string bytes = EncodeTable(good);
  bytes.replace(1, 1, "\xff\xff\xff\xff\xff\xff\xff\xff\x7f");
  EXPECT_THAT(DecodeIndexTable(AsBytes(bytes)),
              StatusIs(kDataLoss, HasSubstr("beyond the end")));
}

TEST_F(BugKinds, B96TablesOfAnySizeAroundABufferAreRead) {
  for (const int64_t around : {kUserBlockBytes, int64_t{1} << 20}) {
    for (int64_t size = around - 10; size <= around + 10; ++size) {
      const TempDir dir(InMemory());
      // The size of the files is in the table as well, in 2 or 3 bytes.
      std::string state;
      Table table;
      for (int64_t missing = around / 2; missing != 0;) {
        state.resize(state.size() + missing, ' ');
        ASSERT_OK(WriteSample(dir.path(), 1, SmallTensors(), true, state));
        table = SmallTable(JoinPath(dir.path(), StepName(1)));
        missing = size - static_cast<int64_t>(EncodeTable(table).size());
      }
      EXPECT_EQ(table.state, state);
    }
  }
}

TEST_F(BugKinds, B97TensorsWithoutElementsAndScalarsAreKept) {
  const std::vector<SampleTensor> tensors = {
      {{"a", "m", DType::kF32, {0}}, {{0, WholeBox({0})}}},
      {{"b", "m", DType::kBF16, {3, 0}}, {{0, WholeBox({3, 0})}}},
      {{"c", "m", DType::kF64, {}}, {{0, {}}}}};
  ASSERT_OK(WriteSample(run_, 2, tensors));
  ASSERT_OK_AND_ASSIGN(const auto reader, Reader::Open(StepDir(2)));
  for (int64_t t = 0; t < 3; ++t) {
    const Tensor& info = reader->table().tensors[t];
    EXPECT_EQ(info, tensors[t].info);
    std::vector<std::byte> bytes(NumElements(info.shape) * 8);
    EXPECT_OK(reader->ReadTensor(t, WholeBox(info.shape), bytes.data()));
    EXPECT_EQ(bytes, Payload(info, WholeBox(info.shape)));
  }
  Table table = reader->table();
  table.fragments[2].blocks.clear();
  EXPECT_THAT(Decode(table), StatusIs(kDataLoss, HasSubstr("0 blocks")));
}

TEST_F(BugKinds, B98EveryReaderHasTheSameVerdict) {
  for (const char* file : {"index.h5", "part-00001.h5"}) {
    const std::string good = ReadFile(Path(file));
    for (const std::string& bad :
         {good + std::string(16, '\0'), good.substr(0, good.size() - 16)}) {
      WriteFile(Path(file), bad);
      EXPECT_THAT(Open(), StatusIs(kDataLoss, HasSubstr(file)));
      EXPECT_THAT(ResolveCheckpoint(run_),
                  StatusIs(kDataLoss, HasSubstr(file)));
      EXPECT_EQ(Verify(StepDir(1), false, [](const Fault&) {})->num_faults, 1);
      EXPECT_EQ(Verify(StepDir(1), true, [](const Fault&) {})->num_faults, 1);
    }
    WriteFile(Path(file), good);
  }
}

// Parts that were written to another machine's disk.
TEST_F(BugKinds, B99ACommitRefusesPartsThatItDoesNotSee) {
  const TempDir other(InMemory());
  ASSERT_OK_AND_ASSIGN(const std::string here, BeginCheckpoint(run_, 2));
  ASSERT_OK_AND_ASSIGN(const std::string there,
                       BeginCheckpoint(other.path(), 2));
  ASSERT_OK_AND_ASSIGN(const std::vector<PartReceipt> receipts,
                       WriteSampleParts(there, {2, "{}"}, SmallTensors()));
  EXPECT_THAT(CommitCheckpoint(run_, {2, "{}"}, receipts, "{}", false),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("part-00000")));
  EXPECT_FALSE(Exists(StepDir(2)).value());
}

TEST_F(BugKinds, B100AWriterThatEndsEarlyLeavesAFileThatSaysSo) {
  const std::string name = PartFileName(0);
  for (int num_blocks = 0; num_blocks <= 2; ++num_blocks) {
    const TempDir dir(InMemory());
    {
      ASSERT_OK_AND_ASSIGN(
          const auto writer,
          PartWriter::Create(dir.path(), 0, {1, "{}"},
                             {{"a", "m", DType::kU8, {1}, {{0}, {1}}},
                              {"b", "m", DType::kU8, {1}, {{0}, {1}}}}));
      for (int b = 0; b < num_blocks; ++b) {
        ASSERT_OK(writer->WriteBlock(b, 0, AsBytes("x")));
      }
    }
    WriteFile(Path(name), ReadFile(JoinPath(dir.path(), name)));
    EXPECT_THAT(Open(),
                StatusIs(kDataLoss, AllOf(HasSubstr(Path(name)),
                                          HasSubstr("not a finished file"))));
  }
}

TEST_F(BugKinds, B100APublishedFileIsNeverWrittenTo) {
  const auto times = [&] {
    std::vector<std::pair<int64_t, int64_t>> result;
    for (const char* file : {"index.h5", "part-00000.h5", "part-00001.h5"}) {
      struct stat info = {};
      EXPECT_EQ(::stat(Path(file).c_str(), &info), 0);
      result.emplace_back(info.st_ino, info.st_mtim.tv_nsec);
    }
    return result;
  };
  const auto before = times();
  ASSERT_OK(WriteSample(run_, 2, SmallTensors()));
  ASSERT_OK(Open());
  ASSERT_OK(Verify(StepDir(1), true, [](const Fault&) {}).status());
  EXPECT_EQ(times(), before);
}

TEST_F(BugKinds, B101AFullDiskFailsTheSaveWithFiguresAndKeepsTheLastOne) {
  FaultyDisk disk(run_);
  const ScopedSystemCalls scope(disk);
  ASSERT_OK_AND_ASSIGN(const std::string partial, BeginCheckpoint(run_, 2));
  disk.FillAt(disk.num_operations() + 4);
  EXPECT_THAT(WriteSampleParts(partial, {2, "{}"}, SmallTensors()),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("needs"), HasSubstr("are free"))));
  EXPECT_EQ(ResolveCheckpoint(run_)->step, 1);
}

TEST_F(BugKinds, B102TheLatestPointerIsRelativeAndOnlyAHint) {
  EXPECT_EQ(ReadFile(JoinPath(run_, "latest")), "step-00000001\n");
  for (const char* text :
       {"step-00000009\n", "/elsewhere/step-00000001\n", ""}) {
    WriteFile(JoinPath(run_, "latest"), text);
    EXPECT_EQ(ResolveCheckpoint(run_)->step, 1);
  }
  const std::string moved = JoinPath(dir_.path(), "moved");
  ASSERT_OK(Rename(run_, moved));
  EXPECT_EQ(ResolveCheckpoint(moved)->step_dir,
            JoinPath(moved, "step-00000001"));
}

TEST_F(BugKinds, B103ACopiedCheckpointIsWholeByItsContent) {
  const std::string copy = JoinPath(dir_.path(), "copy/step-00000001");
  ASSERT_OK(MakeDirectories(copy));
  for (const char* file : {"part-00001.h5", "index.h5"}) {
    WriteFile(JoinPath(copy, file), ReadFile(Path(file)));
  }
  EXPECT_THAT(Reader::Open(copy), StatusIs(kDataLoss, HasSubstr("lacks 1")));
  WriteFile(JoinPath(copy, "part-00000.h5"), ReadFile(Path("part-00000.h5")));
  EXPECT_OK(Reader::Open(copy));
  EXPECT_EQ(ResolveCheckpoint(JoinPath(dir_.path(), "copy"))->step, 1);
}

// State and values are one generation's, or nothing loads.
TEST_F(BugKinds, B105StateAndValuesOfTwoSavesDoNotMix) {
  ASSERT_OK(WriteSample(run_, 2, SmallTensors(), false, "[1]"));
  const std::string index = ReadFile(JoinPath(StepDir(2), "index.h5"));
  ASSERT_OK(WriteSample(run_, 2, SmallTensors(), true, "[2]"));
  EXPECT_EQ(StateOf(2), "[2]");
  WriteFile(JoinPath(StepDir(2), "index.h5"), index);
  EXPECT_THAT(Open(2), StatusIs(kDataLoss, HasSubstr("part-00000.h5")));
}

TEST_F(BugKinds, B106StateAndNamesOfAnySizeAreKept) {
  for (const size_t size : {65'535, 65'536, 200'000}) {
    const std::string state = absl::StrCat("\"", std::string(size, 's'), "\"");
    ASSERT_OK(WriteSample(run_, 2, SmallTensors(), true, state));
    EXPECT_EQ(StateOf(2), state);
  }
  std::vector<SampleTensor> tensors;
  for (int i = 0; i < 100; ++i) {
    const std::string name =
        absl::StrCat(std::string(kMaxNameBytes - 3, 'n'), 100 + i);
    tensors.push_back({{name, name, DType::kU8, {2}}, {{0, {{0}, {2}}}}});
  }
  ASSERT_OK(WriteSample(run_, 2, tensors, true));
  EXPECT_EQ(SmallTable(StepDir(2)).tensors.back(), tensors.back().info);
  tensors[0].info.name += 'n';
  EXPECT_THAT(WriteSample(run_, 3, tensors),
              StatusIs(kInvalid, HasSubstr("1 to 1024")));
}

TEST_F(BugKinds, B127AnErrorOfDamageSaysWhatWhereAndWhatWasExpected) {
  const std::string name = Path("part-00001.h5");
  const std::string good = ReadFile(name);
  const auto size = absl::StrCat(good.size());
  WriteFile(name, good.substr(0, good.size() - 5));
  EXPECT_THAT(Open(), StatusIs(kDataLoss, AllOf(HasSubstr(name),
                                                HasSubstr("expected " + size),
                                                Not(HasSubstr("\n")))));
  WriteFile(name, "");
  EXPECT_THAT(Open(), StatusIs(kDataLoss, HasSubstr(name)));
  const Table table = SmallTable(StepDir(1));
  const int64_t place = table.fragments[0].blocks[0].offset_bytes;
  std::string flipped = good;
  flipped[place] ^= 1;
  WriteFile(name, flipped);
  ASSERT_OK_AND_ASSIGN(const auto reader, Reader::Open(StepDir(1)));
  std::byte bytes[10];
  EXPECT_THAT(reader->ReadTensor(0, {{0}, {5}}, bytes),
              StatusIs(kDataLoss, AllOf(HasSubstr(name),
                                        HasSubstr("tensor \"b\" (weight)"),
                                        HasSubstr(absl::StrCat("byte ", place)),
                                        HasSubstr("checksum"))));
}

// A file system whose locks do not work.
class LocklessDisk : public SystemCalls {
 public:
  explicit LocklessDisk(int error) : error_(error) {}
  int FLock(int, int) override {
    errno = error_;
    return -1;
  }

 private:
  int error_;
};

TEST_F(BugKinds, B140AFileSystemWithoutLocksIsWrittenAndRead) {
  for (const int error : {ENOLCK, ENOSYS, EOPNOTSUPP}) {
    LocklessDisk disk(error);
    const ScopedSystemCalls scope(disk);
    EXPECT_OK(Open());
    EXPECT_OK(WriteSample(run_, 2, SmallTensors(), /*replace=*/true));
  }
}

TEST_F(BugKinds, B141AnUnknownCodecIsRefusedAtOpenAndNoneIsTheDefault) {
  Table table = SmallTable(StepDir(1));
  for (const Fragment& fragment : table.fragments) {
    EXPECT_EQ(fragment.codec, Codec::kNone);
  }
  table.fragments[1].codec = Codec{9};
  EXPECT_THAT(Decode(table), StatusIs(kDataLoss, AllOf(HasSubstr("\"n\""),
                                                       HasSubstr("codec 9"))));
}

TEST_F(BugKinds, B142AnotherLibraryThanWasCompiledWithIsRefused) {
  EXPECT_OK(CheckHdf5Version());
  EXPECT_THAT(CheckHdf5Version({1, 6, 0}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("1.6.0"), HasSubstr("compiled with"))));
}

}  // namespace
}  // namespace shardshift::ckpt
