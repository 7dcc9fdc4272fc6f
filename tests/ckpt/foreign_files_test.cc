// Tensors in files that are not ours are read like our own.
// SPDX-License-Identifier: Apache-2.0
#include "ckpt/foreign_files.h"

#include <cstddef>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ForeignFilesTest, EveryBoxIsRead) {
  const TempDir directory;
  for (const unsigned seed : {1u, 2u, 3u, 4u}) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::vector<SampleTensor> tensors = RandomTensors(3, random);
    ASSERT_OK_AND_ASSIGN(
        const std::unique_ptr<Reader> reader,
        WriteForeignSample(directory.path() + "/file", tensors, random));
    for (const SampleTensor& tensor : tensors) {
      ASSERT_OK_AND_ASSIGN(
          const int64_t index,
          reader->FindTensor(tensor.info.name, tensor.info.role));
      for (const Box& box :
           RandomPartition(WholeBox(tensor.info.shape), 4, random)) {
        std::vector<std::byte> found(Payload(tensor.info, box).size());
        ASSERT_OK(reader->ReadTensor(index, box, found.data()));
        EXPECT_TRUE(found == Payload(tensor.info, box))
            << Describe(tensor.info) << ToString(box.start);
      }
    }
  }
}

TEST(ForeignFilesTest, FingerprintsAreThoseOfOurOwn) {
  const TempDir directory;
  std::mt19937 random(9);
  const std::vector<SampleTensor> tensors = RandomTensors(2, random);
  ASSERT_OK(WriteSample(directory.path() + "/run", 5, tensors));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Reader> ours,
                       Reader::Open(directory.path() + "/run/" + StepName(5)));
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Reader> foreign,
      WriteForeignSample(directory.path() + "/file", tensors, random));
  ASSERT_OK(foreign->TakeFingerprints());
  EXPECT_EQ(TensorFingerprints(foreign->table()),
            TensorFingerprints(ours->table()));
}

// Larger than a block, so that a column is read for a part of its rows.
TEST(ForeignFilesTest, LargeMatrixStoredColumnByColumn) {
  const TempDir directory;
  const Tensor info = {"w", "weight", DType::kF32, {1500, 1100}};
  const Box whole = WholeBox(info.shape);
  const std::vector<std::byte> image = Payload(info, whole);
  std::string bytes(image.size(), ' ');
  for (int64_t r = 0; r < 1500; ++r) {
    for (int64_t c = 0; c < 1100; ++c) {
      const auto* item = &image[(r * 1100 + c) * 4];
      bytes.replace((c * 1500 + r) * 4, 4, reinterpret_cast<const char*>(item),
                    4);
    }
  }
  const std::string path = directory.path() + "/file";
  WriteFile(path, bytes);
  ForeignFilesBuilder builder(path);
  const int64_t file = builder.AddFile(path, std::ssize(bytes));
  ASSERT_OK(builder.Add(info, whole, {file, 0, 1500}));
  ASSERT_OK_AND_ASSIGN(ForeignFiles files, builder.Build(0, "{}", "{}"));
  const auto reader = Reader::OpenForeign(std::move(files));
  std::vector<std::byte> found(image.size());
  ASSERT_OK(reader->ReadTensor(0, whole, found.data()));
  EXPECT_TRUE(found == image);
}

TEST(ForeignFilesTest, ValuesInMemoryAreReadLikeThoseInFiles) {
  const TempDir directory;
  const Tensor info = {"w", "weight", DType::kF32, {40, 50}};
  const Box top = {{0, 0}, {10, 50}};
  const Box bottom = {{10, 0}, {30, 50}};
  const std::string path = directory.path() + "/file";
  const std::vector<std::byte> in_file = Payload(info, top);
  WriteFile(path, std::string(reinterpret_cast<const char*>(in_file.data()),
                              in_file.size()));
  ForeignFilesBuilder builder(path);
  const int64_t memory =
      builder.AddContents("filled in", Payload(info, bottom));
  const int64_t file = builder.AddFile(path, std::ssize(in_file));
  EXPECT_THAT(builder.Add(info, bottom, {memory, 4, 0}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("filled in")));
  ASSERT_OK(builder.Add(info, bottom, {memory, 0, 0}));
  ASSERT_OK(builder.Add(info, top, {file, 0, 0}));
  ASSERT_OK_AND_ASSIGN(ForeignFiles files, builder.Build(0, "{}", "{}"));
  const auto reader = Reader::OpenForeign(std::move(files));
  std::vector<std::byte> found(40 * 50 * 4);
  ASSERT_OK(reader->ReadTensor(0, WholeBox(info.shape), found.data()));
  EXPECT_TRUE(found == Payload(info, WholeBox(info.shape)));
  EXPECT_OK(reader->TakeFingerprints());
}

class ForeignRefusalTest : public ::testing::Test {
 protected:
  // Of a file of 100 bytes, that need not be there.
  static absl::Status Refusal(const Tensor& info, const Box& box,
                              int64_t offset_bytes, int64_t column_pitch = 0) {
    ForeignFilesBuilder builder("a/folder");
    const int64_t file = builder.AddFile("a/folder/file", 100);
    absl::Status added =
        builder.Add(info, box, {file, offset_bytes, column_pitch});
    if (!added.ok()) return added;
    return builder.Build(0, "{}", "{}").status();
  }
};

TEST_F(ForeignRefusalTest, APlaceOutsideTheFileIsNamed) {
  const Tensor info = {"w", "weight", DType::kF32, {5, 5}};
  EXPECT_OK(Refusal(info, WholeBox(info.shape), 0));
  for (const int64_t offset : {int64_t{1}, int64_t{-4}, int64_t{1} << 62,
                               std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(Refusal(info, WholeBox(info.shape), offset),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr("a/folder/file"), HasSubstr("\"w\""),
                               HasSubstr("100 bytes"))));
  }
  EXPECT_OK(Refusal(info, WholeBox(info.shape), 0, 5));
  EXPECT_THAT(Refusal(info, WholeBox(info.shape), 0, 6),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("outside")));
  EXPECT_THAT(Refusal(info, WholeBox(info.shape), 0,
                      std::numeric_limits<int64_t>::max()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("outside")));
}

TEST_F(ForeignRefusalTest, ColumnsThatOverlapAreNone) {
  const Tensor info = {"w", "weight", DType::kF32, {5, 5}};
  EXPECT_THAT(Refusal(info, WholeBox(info.shape), 0, 4),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("4 elements apart")));
}

TEST_F(ForeignRefusalTest, HolesAndHugeShapesAreErrors) {
  const Tensor info = {"w", "weight", DType::kF32, {5, 5}};
  EXPECT_THAT(Refusal(info, {{0, 0}, {4, 5}}, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("a/folder"), HasSubstr("\"w\""))));
  const int64_t huge = int64_t{1} << 40;
  const Tensor large = {"w", "weight", DType::kF32, {huge, huge}};
  EXPECT_THAT(Refusal(large, {{0, 0}, {1, 1}}, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"w\"")));
}

}  // namespace
}  // namespace shardshift::ckpt
