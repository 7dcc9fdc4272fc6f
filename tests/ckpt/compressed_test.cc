// Checkpoints with a codec: the same values in fewer bytes.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "ckpt/core/checksum.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/hdf5/handle.h"
#include "ckpt/hdf5/part_file.h"
#include "ckpt/io/file.h"
#include "ckpt/io/worker_pool.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "ckpt/verify.h"
#include "ckpt/writer.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

// A part of one tensor for each of `sizes` elements, in turn of each dtype.
std::vector<FragmentSpec> RowSpecs(const std::vector<int64_t>& sizes) {
  std::vector<FragmentSpec> specs;
  for (size_t i = 0; i < sizes.size(); ++i) {
    specs.push_back({absl::StrCat("t", i),
                     "m",
                     static_cast<DType>(i % kNumDTypes),
                     {sizes[i]},
                     WholeBox({sizes[i]})});
  }
  return specs;
}

// Bytes that tell their tensor and place, and compress a little: a hash of
// both for each 8 of them.
Bytes Image(const FragmentSpec& spec) {
  Bytes image(NumElements(spec.box) * ItemSize(spec.dtype));
  const uint64_t seed = Checksum64(AsBytes(spec.tensor));
  for (size_t at = 0; at < image.size(); at += sizeof(uint64_t)) {
    uint64_t code = (seed + at) * 0x9e3779b97f4a7c15;
    code = (code ^ code >> 32) & 0x03ff'ffff'03ff'ffff;
    std::memcpy(&image[at], &code, std::min(sizeof(code), image.size() - at));
  }
  return image;
}

std::vector<Bytes> Images(const std::vector<FragmentSpec>& specs) {
  std::vector<Bytes> images;
  images.reserve(specs.size());
  for (const FragmentSpec& spec : specs) images.push_back(Image(spec));
  return images;
}

// The blocks of `specs`, in their order.
struct BlockOfPart {
  int64_t fragment;
  int64_t block;
  std::span<const std::byte> bytes;
};
std::vector<BlockOfPart> Blocks(const std::vector<Bytes>& images) {
  std::vector<BlockOfPart> blocks;
  for (size_t f = 0; f < images.size(); ++f) {
    const std::span<const std::byte> image = images[f];
    for (size_t begin = 0; begin < image.size(); begin += kBlockBytes) {
      const size_t size = std::min<size_t>(kBlockBytes, image.size() - begin);
      blocks.push_back({static_cast<int64_t>(f),
                        static_cast<int64_t>(begin / kBlockBytes),
                        image.subspan(begin, size)});
    }
  }
  return blocks;
}

// Writes a run of one part with the tasks of `pool`, or else one by one.
absl::StatusOr<std::unique_ptr<Reader>> WriteRun(
    const std::string& run_dir, const std::vector<FragmentSpec>& specs,
    Codec codec, WorkerPool* pool = nullptr) {
  SS_ASSIGN_OR_RETURN(const std::string partial, BeginCheckpoint(run_dir, 1));
  const CheckpointId id = {1, "{}"};
  SS_ASSIGN_OR_RETURN(const std::unique_ptr<PartWriter> writer,
                      PartWriter::Create(partial, 0, id, specs, codec));
  const std::vector<Bytes> images = Images(specs);
  const std::vector<BlockOfPart> blocks = Blocks(images);
  const auto write = [&](int64_t i) {
    return writer->WriteBlock(blocks[i].fragment, blocks[i].block,
                              blocks[i].bytes);
  };
  WorkerPool alone(0);
  SS_RETURN_IF_ERROR(
      (pool == nullptr ? alone : *pool).Run(std::ssize(blocks), write));
  SS_ASSIGN_OR_RETURN(const PartReceipt receipt, writer->Close());
  SS_RETURN_IF_ERROR(CommitCheckpoint(run_dir, id, {receipt}, "{}", false));
  return Reader::Open(JoinPath(run_dir, StepName(1)));
}

Bytes ReadAll(const Reader& reader, const FragmentSpec& spec) {
  const int64_t tensor = reader.FindTensor(spec.tensor, spec.role).value();
  Bytes bytes(NumElements(spec.box) * ItemSize(spec.dtype));
  EXPECT_OK(reader.ReadTensor(tensor, spec.box, bytes.data()));
  return bytes;
}

std::string PartPath(const Reader& reader) {
  return JoinPath(reader.directory(), PartFileName(0));
}

// Sizes around the smallest compressed fragment and the border of a block, in
// elements of the dtype that is their turn.
std::vector<int64_t> TellingSizes() {
  return {1,
          4095,
          4096,
          2047,
          5000,
          kBlockBytes - 1,
          2048,
          kBlockBytes / 2 - 1,
          3000,
          1025,
          kBlockBytes / 4 + 77,
          1023,
          1024,
          kBlockBytes / 8 + 1,
          512};
}

TEST(Compressed, GivesBackEveryValueOfEveryDTypeAroundBlockBorders) {
  const TempDir dir;
  const std::vector<FragmentSpec> specs = RowSpecs(TellingSizes());
  ASSERT_OK_AND_ASSIGN(const auto reader, WriteRun(dir.path() + "/run", specs,
                                                   Codec::kShuffleZstd));
  for (const FragmentSpec& spec : specs) {
    EXPECT_TRUE(ReadAll(*reader, spec) == Image(spec)) << spec.tensor;
    const int64_t tensor = reader->FindTensor(spec.tensor, "m").value();
    const int64_t num_bytes = spec.shape[0] * ItemSize(spec.dtype);
    EXPECT_EQ(reader->Fragments(tensor).front().codec,
              num_bytes < 4096 ? Codec::kNone : Codec::kShuffleZstd)
        << spec.tensor;
  }
}

TEST(Compressed, GivesBackBoxesOfAFragmentOfManyBlocks) {
  const TempDir dir;
  const Shape shape = {1030, 3, 1000};
  const FragmentSpec spec = {"w", "m", DType::kF32, shape, WholeBox(shape)};
  ASSERT_OK_AND_ASSIGN(const auto reader, WriteRun(dir.path() + "/run", {spec},
                                                   Codec::kShuffleZstd));
  const Bytes whole = Image(spec);
  for (const Box& box :
       {Box{{0, 1, 7}, {1030, 1, 2}}, Box{{349, 0, 0}, {2, 3, 1000}},
        Box{{1029, 2, 999}, {1, 1, 1}}}) {
    Bytes bytes(NumElements(box) * 4);
    ASSERT_OK(reader->ReadTensor(0, box, bytes.data()));
    size_t at = 0;
    for (int64_t i = 0; i < box.extent[0]; ++i) {
      for (int64_t j = 0; j < box.extent[1]; ++j) {
        const int64_t row = (box.start[0] + i) * 3 + box.start[1] + j;
        const int64_t begin = (row * 1000 + box.start[2]) * 4;
        const int64_t size = box.extent[2] * 4;
        EXPECT_EQ(std::memcmp(&bytes[at], &whole[begin], size), 0);
        at += size;
      }
    }
  }
}

TEST(Compressed, HasTheFingerprintsOfThePlainOne) {
  const TempDir dir;
  const std::vector<FragmentSpec> specs = RowSpecs(TellingSizes());
  ASSERT_OK_AND_ASSIGN(const auto plain,
                       WriteRun(dir.path() + "/a", specs, Codec::kNone));
  ASSERT_OK_AND_ASSIGN(const auto packed,
                       WriteRun(dir.path() + "/b", specs, Codec::kShuffleZstd));
  EXPECT_EQ(TensorFingerprints(plain->table()),
            TensorFingerprints(packed->table()));
  EXPECT_EQ(RootFingerprintOf(plain->table()),
            RootFingerprintOf(packed->table()));
  EXPECT_LT(packed->total_bytes(), plain->total_bytes());
}

TEST(Compressed, HasTheSameBytesWhateverTheThreads) {
  const TempDir dir;
  std::vector<int64_t> sizes = {100, kBlockBytes + 9};
  for (int64_t i = 0; i < 100; ++i) sizes.push_back(4096 + 97 * i);
  const std::vector<FragmentSpec> specs = RowSpecs(sizes);
  std::string expected;
  for (const int64_t num_threads : {0, 1, 3, 3}) {
    const std::string run = absl::StrCat(dir.path(), "/run");
    WorkerPool pool(num_threads);
    ASSERT_OK_AND_ASSIGN(const auto reader,
                         WriteRun(run, specs, Codec::kShuffleZstd, &pool));
    const std::string bytes =
        ReadFile(PartPath(*reader)) +
        ReadFile(JoinPath(reader->directory(), kIndexFileName));
    if (expected.empty()) expected = bytes;
    EXPECT_TRUE(bytes == expected) << num_threads;
    ASSERT_OK(RemoveTree(run));
  }
}

// The library's own view of its chunks is ours.
TEST(Compressed, LiesWhereHdf5LooksForItsChunks) {
  const TempDir dir;
  const std::vector<FragmentSpec> specs = RowSpecs(TellingSizes());
  ASSERT_OK_AND_ASSIGN(const auto reader, WriteRun(dir.path() + "/run", specs,
                                                   Codec::kShuffleZstd));
  const Table& table = reader->table();
  const Hdf5Lock lock;
  const Handle file(
      H5Fopen(PartPath(*reader).c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
  int64_t num_datasets = 0;
  int64_t num_chunks = 0;
  for (const Fragment& fragment : table.fragments) {
    if (fragment.codec == Codec::kNone) continue;
    const Tensor& tensor = table.tensors[fragment.tensor];
    const Handle dataset(H5Dopen2(file.get(),
                                  FragmentDataset(tensor, fragment.box).c_str(),
                                  H5P_DEFAULT));
    const Handle space(H5Dget_space(dataset.get()));
    hsize_t count = 0;
    ++num_datasets;
    ASSERT_GE(H5Dget_num_chunks(dataset.get(), space.get(), &count), 0);
    ASSERT_EQ(count, fragment.blocks.size());
    for (hsize_t c = 0; c < count; ++c) {
      hsize_t element = 0;
      unsigned mask = 1;
      haddr_t address = 0;
      hsize_t size = 0;
      ASSERT_GE(H5Dget_chunk_info(dataset.get(), space.get(), c, &element,
                                  &mask, &address, &size),
                0);
      const Block& block = fragment.blocks[c];
      EXPECT_EQ(element * ItemSize(tensor.dtype), c * kBlockBytes);
      EXPECT_EQ(mask, 0u);
      // The library counts from the end of the user block here.
      EXPECT_EQ(static_cast<int64_t>(address) + kUserBlockBytes,
                block.offset_bytes);
      EXPECT_EQ(static_cast<int64_t>(size), block.stored_bytes);
      ++num_chunks;
    }
  }
  EXPECT_GT(num_chunks, num_datasets);
}

TEST(Compressed, DetectsDamageToEveryByteOfABlock) {
  const TempDir dir;
  const std::vector<FragmentSpec> specs = RowSpecs({1, 4096});
  ASSERT_OK_AND_ASSIGN(const auto reader, WriteRun(dir.path() + "/run", specs,
                                                   Codec::kShuffleZstd));
  const Block block = reader->Fragments(1).front().blocks.front();
  ASSERT_OK_AND_ASSIGN(const File file, File::OpenForUpdate(PartPath(*reader)));
  Bytes values(4096);
  for (int64_t i = 0; i < block.stored_bytes; ++i) {
    std::byte good;
    const int64_t place = block.offset_bytes + i;
    ASSERT_OK(file.ReadAt(place, std::span(&good, 1)));
    const std::byte bad = good ^ std::byte{1} << i % 8;
    ASSERT_OK(file.WriteAt(place, std::span(&bad, 1)));
    EXPECT_THAT(reader->ReadTensor(1, specs[1].box, values.data()),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("\"t1\" (m) [0:4096], the ")));
    ASSERT_OK(file.WriteAt(place, std::span(&good, 1)));
  }
  EXPECT_OK(reader->ReadTensor(1, specs[1].box, values.data()));
}

TEST(Compressed, PassesTheDeepCheckUntilAByteChanges) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const auto reader,
                       WriteRun(dir.path() + "/run", RowSpecs(TellingSizes()),
                                Codec::kShuffleZstd));
  int faults = 0;
  const auto count = [&faults](const Fault&) { ++faults; };
  ASSERT_OK(Verify(reader->directory(), true, count).status());
  EXPECT_EQ(faults, 0);
  std::string bytes = ReadFile(PartPath(*reader));
  const Block& block = reader->Fragments(2).front().blocks.front();
  bytes[block.offset_bytes + block.stored_bytes - 1] ^= 1;
  WriteFile(PartPath(*reader), bytes);
  ASSERT_OK(Verify(reader->directory(), true, count).status());
  EXPECT_EQ(faults, 1);
}

TEST(Compressed, WantsEachBlockOnce) {
  const TempDir dir;
  const std::vector<FragmentSpec> specs = RowSpecs({8192, 8192});
  ASSERT_OK_AND_ASSIGN(
      const auto writer,
      PartWriter::Create(dir.path(), 0, {1, "{}"}, specs, Codec::kShuffleZstd));
  const std::vector<Bytes> images = Images(specs);
  ASSERT_OK(writer->WriteBlock(0, 0, images[0]));
  EXPECT_THAT(
      writer->WriteBlock(0, 0, images[0]),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("before")));
}

TEST(Compressed, WaitsForTheBlocksBeforeThatOtherThreadsWrite) {
  const TempDir dir;
  const std::vector<FragmentSpec> specs = RowSpecs({8192, 8192, 8192});
  ASSERT_OK_AND_ASSIGN(
      const auto writer,
      PartWriter::Create(dir.path(), 0, {1, "{}"}, specs, Codec::kShuffleZstd));
  const std::vector<Bytes> images = Images(specs);
  std::vector<std::thread> threads;
  for (const int64_t i : {2, 1, 0}) {
    threads.emplace_back(
        [&, i] { EXPECT_OK(writer->WriteBlock(i, 0, images[i])); });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_OK_AND_ASSIGN(const PartReceipt receipt, writer->Close());
  const PageVector<Fragment>& fragments = receipt.table.fragments;
  EXPECT_LT(fragments[0].blocks[0].offset_bytes,
            fragments[1].blocks[0].offset_bytes);
  EXPECT_LT(fragments[1].blocks[0].offset_bytes,
            fragments[2].blocks[0].offset_bytes);
}

TEST(Compressed, FailsABlockThatWaitsForOneThatFailed) {
  const TempDir dir;
  const std::vector<FragmentSpec> specs = RowSpecs({8192, 8192, 8192});
  ASSERT_OK_AND_ASSIGN(
      const auto writer,
      PartWriter::Create(dir.path(), 0, {1, "{}"}, specs, Codec::kShuffleZstd));
  const std::vector<Bytes> images = Images(specs);
  ASSERT_OK(writer->WriteBlock(0, 0, images[0]));
  absl::Status status;
  std::thread waits([&] { status = writer->WriteBlock(2, 0, images[2]); });
  EXPECT_FALSE(writer->WriteBlock(0, 0, images[0]).ok());
  waits.join();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("another block of")));
}

// A reader that lacks the codec says so, of the tensor, when it opens.
TEST(Compressed, B141AnUnknownCodecIsNamedWhenTheIndexIsOpened) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(
      const auto reader,
      WriteRun(dir.path() + "/run", RowSpecs({4096}), Codec::kShuffleZstd));
  Table table = reader->table();
  table.fragments[0].codec = static_cast<Codec>(2);
  EXPECT_THAT(DecodeIndexTable(AsBytes(EncodeTable(table))),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("\"t0\" (m) [0:4096] has codec 2")));
}

}  // namespace
}  // namespace shardshift::ckpt
