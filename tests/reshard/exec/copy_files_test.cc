// Any cut to any other, in little memory: the oracle is the dense tensor.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/copy_files.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/convert.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/run_dir.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ckpt::Box;
using ckpt::DType;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

struct Job {
  std::vector<TargetPart> parts;
  std::vector<TensorCopy> tensors;
};

// Cuts every tensor anew at random. With `in_order`, each piece is a part of
// its own, so that a codec finds blocks in the order of their turns.
Job RandomJob(const ckpt::Reader& source, int num_parts, bool in_order,
              std::mt19937& random) {
  Job job;
  const ckpt::Table& table = source.table();
  if (!in_order) job.parts.resize(num_parts);
  for (size_t t = 0; t < table.tensors.size(); ++t) {
    const ckpt::Tensor& info = table.tensors[t];
    TensorCopy copy{.source = static_cast<int64_t>(t)};
    for (Box& box :
         ckpt::RandomPartition(ckpt::WholeBox(info.shape), 9, random)) {
      size_t part = job.parts.size();
      if (in_order) {
        job.parts.emplace_back();
      } else {
        part = random() % job.parts.size();
      }
      copy.targets.push_back(
          {static_cast<int64_t>(part), std::ssize(job.parts[part].specs)});
      job.parts[part].specs.push_back(
          {info.name, info.role, info.dtype, info.shape, std::move(box)});
    }
    job.tensors.push_back(std::move(copy));
  }
  // Parts are not empty: the indices of the others stay.
  for (size_t p = 0; p < job.parts.size(); ++p) {
    job.parts[p].number = static_cast<int64_t>(p);
  }
  return job;
}

class CopyFilesTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const {
    return ckpt::JoinPath(directory_.path(), name);
  }

  void WriteSource(const std::vector<ckpt::SampleTensor>& tensors) {
    ASSERT_OK(ckpt::WriteSample(Path("source"), 5, tensors));
    ASSERT_OK_AND_ASSIGN(source_, ckpt::Reader::Open(ckpt::JoinPath(
                                      Path("source"), ckpt::StepName(5))));
  }

  absl::StatusOr<std::unique_ptr<ckpt::Reader>> Copy(
      const std::string& name, const Job& job, const CopyFilesOptions& options,
      NamedFingerprints* fingerprints = nullptr) {
    const ckpt::CheckpointId id = {5, source_->state()};
    SS_ASSIGN_OR_RETURN(const std::string partial,
                        ckpt::BeginCheckpoint(Path(name), 5));
    SS_ASSIGN_OR_RETURN(
        CopiedFiles copied,
        CopyFiles(*source_, job.parts, job.tensors,
                  PartsOfOurs(partial, id, options.codec), options));
    if (fingerprints != nullptr) *fingerprints = copied.fingerprints;
    SS_RETURN_IF_ERROR(
        ckpt::CommitCheckpoint(Path(name), id, copied.receipts, "{}", false));
    return ckpt::Reader::Open(ckpt::JoinPath(Path(name), ckpt::StepName(5)));
  }

  const ckpt::TempDir directory_;
  std::unique_ptr<ckpt::Reader> source_;
};

void ExpectHoldsPayload(const ckpt::Reader& reader) {
  for (size_t t = 0; t < reader.table().tensors.size(); ++t) {
    const ckpt::Tensor& info = reader.table().tensors[t];
    const Box whole = ckpt::WholeBox(info.shape);
    const std::vector<std::byte> expected = ckpt::Payload(info, whole);
    std::vector<std::byte> found(expected.size());
    ASSERT_OK(reader.ReadTensor(static_cast<int64_t>(t), whole, found.data()));
    EXPECT_TRUE(found == expected) << Describe(info);
  }
}

TEST_F(CopyFilesTest, MakesAnyCutOfAnyOtherInLittleMemory) {
  for (const unsigned seed : {1u, 2u, 3u, 4u, 5u, 6u}) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    ASSERT_NO_FATAL_FAILURE(WriteSource(ckpt::RandomTensors(3, random)));
    const bool in_order = seed % 2 == 0;
    const Job job = RandomJob(*source_, 4, in_order, random);
    const std::string name = absl::StrCat("copy", seed);
    ASSERT_OK_AND_ASSIGN(const auto copy,
                         Copy(name, job,
                              {.memory_bytes = int64_t{256} << 10 << seed % 3,
                               .codec = in_order ? ckpt::Codec::kShuffleZstd
                                                 : ckpt::Codec::kNone}));
    ExpectHoldsPayload(*copy);
    EXPECT_EQ(ckpt::RootFingerprintOf(copy->table()),
              ckpt::RootFingerprintOf(source_->table()));
    ASSERT_OK(ckpt::RemoveTree(Path("source")));
  }
}

TEST_F(CopyFilesTest, TakesForeignFilesToo) {
  for (const unsigned seed : {1u, 2u, 3u, 4u, 5u, 6u}) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    ASSERT_OK_AND_ASSIGN(
        source_, ckpt::WriteForeignSample(
                     Path("foreign"), ckpt::RandomTensors(3, random), random));
    const Job job = RandomJob(*source_, 4, /*in_order=*/false, random);
    NamedFingerprints fingerprints;
    ASSERT_OK_AND_ASSIGN(
        const auto copy,
        Copy(absl::StrCat("copy", seed), job,
             {.memory_bytes = int64_t{256} << 10 << seed % 3}, &fingerprints));
    ExpectHoldsPayload(*copy);
    const auto sums = ckpt::TensorFingerprints(copy->table());
    ASSERT_EQ(fingerprints.size(), sums.size());
    for (size_t t = 0; t < sums.size(); ++t) {
      EXPECT_EQ(fingerprints.at({static_cast<int64_t>(t), 0}), sums[t]);
    }
  }
}

// A matrix of two blocks and a half, in rows or in columns over parts.
ckpt::SampleTensor Matrix(size_t dim, int64_t num_parts) {
  ckpt::SampleTensor matrix{.info = {"w", "master", DType::kF32, {640, 4096}},
                            .pieces = {}};
  for (int64_t p = 0; p < num_parts; ++p) {
    Box box = ckpt::WholeBox(matrix.info.shape);
    box.extent[dim] /= num_parts;
    box.start[dim] = p * box.extent[dim];
    matrix.pieces.push_back({p, std::move(box)});
  }
  return matrix;
}

Job JobOf(const ckpt::SampleTensor& tensor, const ckpt::Tensor& as) {
  Job job;
  job.tensors.push_back({.source = 0});
  for (const ckpt::Piece& piece : tensor.pieces) {
    job.tensors[0].targets.push_back({std::ssize(job.parts), 0});
    job.parts.push_back(
        {piece.part, {{as.name, as.role, as.dtype, as.shape, piece.box}}});
  }
  return job;
}

TEST_F(CopyFilesTest, RowsBecomeColumnsAndRowsAgain) {
  const ckpt::SampleTensor rows = Matrix(0, 2);
  const ckpt::SampleTensor columns = Matrix(1, 8);
  ASSERT_NO_FATAL_FAILURE(WriteSource({rows}));
  ASSERT_OK_AND_ASSIGN(source_, Copy("columns", JobOf(columns, rows.info), {}));
  ExpectHoldsPayload(*source_);
  ASSERT_OK_AND_ASSIGN(
      const auto again,
      Copy("rows", JobOf(rows, rows.info), {.memory_bytes = int64_t{2} << 20}));
  ExpectHoldsPayload(*again);
  for (const std::string part : {"part-00000.h5", "part-00001.h5"}) {
    const std::string inside = absl::StrCat(ckpt::StepName(5), "/", part);
    EXPECT_TRUE(ckpt::ReadWholeFile(ckpt::JoinPath(Path("rows"), inside)) ==
                ckpt::ReadWholeFile(ckpt::JoinPath(Path("source"), inside)));
  }
}

TEST_F(CopyFilesTest, ConvertsAndFingerprintsWhatItReadUnderTheNewName) {
  const ckpt::Shape shape = Matrix(0, 1).info.shape;
  const ckpt::Tensor as = {"w", "weight", DType::kBF16, shape};
  const Box whole = ckpt::WholeBox(shape);
  // From rows, and from the very columns of the copy.
  for (const ckpt::SampleTensor& from : {Matrix(0, 2), Matrix(1, 4)}) {
    ASSERT_NO_FATAL_FAILURE(WriteSource({from}));
    NamedFingerprints fingerprints;
    ASSERT_OK_AND_ASSIGN(const auto copy, Copy("copy", JobOf(Matrix(1, 4), as),
                                               {}, &fingerprints));
    const std::vector<std::byte> values = ckpt::Payload(from.info, whole);
    std::vector<std::byte> expected(values.size() / 2);
    ckpt::ConvertValues(DType::kF32, values.data(), DType::kBF16,
                        expected.data(), ckpt::NumElements(whole));
    std::vector<std::byte> found(expected.size());
    ASSERT_OK(copy->ReadTensor(0, whole, found.data()));
    EXPECT_TRUE(found == expected);
    EXPECT_THAT(fingerprints,
                ElementsAre(Pair(Pair(0, 0),
                                 ckpt::TensorFingerprints(copy->table())[0])));
    ASSERT_OK(ckpt::RemoveTree(Path("source")));
    ASSERT_OK(ckpt::RemoveTree(Path("copy")));
  }
}

TEST_F(CopyFilesTest, NamesADamagedBlock) {
  const ckpt::SampleTensor rows = Matrix(0, 2);
  ASSERT_NO_FATAL_FAILURE(WriteSource({rows}));
  const std::string part = ckpt::JoinPath(
      Path("source"), absl::StrCat(ckpt::StepName(5), "/part-00001.h5"));
  const ckpt::Fragment& fragment = source_->table().fragments[1];
  ASSERT_OK_AND_ASSIGN(const ckpt::File file, ckpt::File::OpenForUpdate(part));
  const std::byte other[1] = {std::byte{0x5a}};
  ASSERT_OK(file.WriteAt(fragment.blocks[0].offset_bytes + 12345, other));
  EXPECT_THAT(Copy("copy", JobOf(Matrix(1, 4), rows.info), {}).status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("part-00001.h5"), HasSubstr("\"w\""),
                             HasSubstr("checksum differs"))));
}

TEST_F(CopyFilesTest, RefusesATargetThatNoSourceHolds) {
  ckpt::SampleTensor rows = Matrix(0, 2);
  ASSERT_NO_FATAL_FAILURE(WriteSource({rows}));
  Job job = JobOf(rows, rows.info);
  job.parts[1].specs[0].box.start[0] += 1;
  EXPECT_THAT(Copy("copy", job, {}).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("\"w\"")));
}

TEST_F(CopyFilesTest, RefusesATensorWithoutATarget) {
  ckpt::SampleTensor rows = Matrix(0, 2);
  ASSERT_NO_FATAL_FAILURE(WriteSource({rows}));
  Job job = JobOf(rows, rows.info);
  job.tensors[0].targets.clear();
  EXPECT_THAT(Copy("copy", job, {}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"w\"")));
}

}  // namespace
}  // namespace shardshift::reshard
